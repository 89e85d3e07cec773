"""What is in an image archive, and what is said of one that is damaged or made to do harm."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import tarfile
import tracemalloc

import pytest

from klet.cli.image_archive import (
    LONGEST_DOCUMENT,
    LONGEST_HEADER,
    LONGEST_REST,
    BadArchive,
    decompressed,
    full_name,
    read_archive,
    read_rest,
)
from klet.host.images import ImageConfig, build_image, file

BUILT = build_image(name="klet.local/app:1", layers=[[file("a", b"x" * 5000)]], config=ImageConfig())


def tar(*members):
    """An archive of (name, content) or of TarInfos."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            name, content = member
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


BLOB = b"some content"
DIGEST = hashlib.sha256(BLOB).hexdigest()
BLOB_MEMBER = (f"blobs/sha256/{DIGEST}", BLOB)


def index(**annotations):
    return ("index.json", {"manifests": [{"digest": f"sha256:{DIGEST}", "annotations": annotations}]})


def docker(*tags, config="c.json", layers=("l/layer.tar",)):
    return ("manifest.json", [{"Config": config, "RepoTags": list(tags), "Layers": list(layers)}])


REF = "org.opencontainers.image.ref.name"
FULL = "io.containerd.image.name"


def read(data, **more):
    source = decompressed(io.BufferedReader(io.BytesIO(data)))
    found = read_archive(source, **more)
    read_rest(source)
    return found


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(BUILT, id="as it is"),
        pytest.param(gzip.compress(BUILT), id="gzip"),
        pytest.param(bz2.compress(BUILT), id="bzip2"),
        pytest.param(lzma.compress(BUILT), id="xz"),
        pytest.param(BUILT + b"\0" * 100_000, id="padding behind it"),
    ],
)
def test_an_archive_that_klet_builds(data):
    found = read(data)
    assert found.names == ("klet.local/app:1",)
    assert found.blobs == 3


@pytest.mark.parametrize(
    ("members", "base_name", "names"),
    [
        pytest.param([index(**{REF: "registry.test/app:2"}), BLOB_MEMBER], "", ("registry.test/app:2",), id="OCI"),
        pytest.param([BLOB_MEMBER, index(**{REF: "2"})], "app", ("docker.io/library/app:2",), id="OCI with a tag only"),
        pytest.param(
            [index(**{REF: "1", FULL: "klet.local/app:1"}), BLOB_MEMBER], "", ("klet.local/app:1",), id="containerd's"
        ),
        pytest.param(
            [("c.json", {}), ("l/layer.tar", b""), docker("busybox:1", "localhost:5000/b")],
            "",
            ("docker.io/library/busybox:1", "localhost:5000/b:latest"),
            id="docker save",
        ),
        pytest.param(
            [("./c.json", {}), ("./l/layer.tar", b""), docker("busybox:1")],
            "",
            ("docker.io/library/busybox:1",),
            id="paths that begin with a dot",
        ),
    ],
)
def test_names(members, base_name, names):
    assert read(tar(*members), base_name=base_name).names == names


BOTH = [("c.json", {}), ("l/layer.tar", b""), BLOB_MEMBER, index(**{REF: "registry.test/oci:1"}), docker("docker:1")]


@pytest.mark.parametrize(
    ("members", "names"),
    [
        pytest.param([("oci-layout", {}), *BOTH], ("registry.test/oci:1",), id="OCI that docker can read too"),
        pytest.param(BOTH, ("docker.io/library/docker:1",), id="no layout of OCI"),
    ],
)
def test_of_two_lists_of_names_the_one_counts_that_containerd_reads(members, names):
    assert read(tar(*members)).names == names


@pytest.mark.parametrize(
    ("annotations", "base_name", "short_names"),
    [
        pytest.param({REF: "app:1"}, "", (("app:1", "docker.io/library/app:1"),), id="no host"),
        pytest.param({REF: "registry.test/app@sha256:" + DIGEST}, "", (), id="a digest"),
        pytest.param({REF: "1", FULL: "team/app"}, "", (("team/app", "docker.io/team/app:latest"),), id="containerd's"),
        pytest.param({REF: "1"}, "app", (("app:1", "docker.io/library/app:1"),), id="no host in the repository"),
        pytest.param({REF: "1"}, "registry.test/app", (), id="a tag of a repository in full"),
        pytest.param({REF: "registry.test/app:1"}, "", (), id="in full"),
    ],
)
def test_names_that_the_cri_would_not_find(annotations, base_name, short_names):
    assert read(tar(BLOB_MEMBER, index(**annotations)), base_name=base_name).short_names == short_names


def test_containerd_itself_completes_the_names_of_docker():
    assert read(tar(("c.json", {}), ("l/layer.tar", b""), docker("app:1"))).short_names == ()


def special(kind):
    info = tarfile.TarInfo("x")
    info.type = kind
    return info


def sparse():
    """A member in the sparse format of PAX, whose map would be read at once."""
    info = tarfile.TarInfo("x")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "5"}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    return buffer.getvalue()


def pax(kind=b"x", /, **fields):
    """A PAX header; the member that it is about is to follow."""
    lines = b""
    for name, value in fields.items():
        line = f" {name.replace('_', '.')}={value}\n".encode()
        size = len(line) + 1
        while len(str(size)) + len(line) != size:
            size += 1
        lines += str(size).encode() + line
    info = tarfile.TarInfo("pax")
    info.type, info.size = kind, len(lines)
    return info.tobuf(tarfile.USTAR_FORMAT) + lines + b"\0" * (-len(lines) % 512)


def long_header():
    """A PAX header that says it is longer than any memory."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 40
    return info.tobuf(tarfile.GNU_FORMAT) + b"5 a=b" * 1000


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(b"", "no tar archive", id="nothing"),
        pytest.param(b"no archive at all" * 100, "no tar archive", id="text"),
        pytest.param(gzip.compress(BUILT)[:-200], "no tar archive", id="a compressed one that ends early"),
        pytest.param(BUILT[:6000], "no tar archive", id="one that ends early"),
        pytest.param(gzip.compress(b"x" * 5000), "no tar archive", id="something else, compressed"),
        pytest.param(tar(("x", b"")), "neither index.json nor manifest.json", id="another archive"),
        pytest.param(tar(("blobs/sha256/" + "0" * 64, b"x")), "is damaged", id="a blob with another digest"),
        pytest.param(tar(index(**{REF: "a/b:1"})), "which is not in the archive", id="a blob that is missing"),
        pytest.param(tar(docker("a:1")), "'c.json', which is not in the archive", id="a configuration that is missing"),
        pytest.param(tar(BLOB_MEMBER, index()), "none of its images has a name", id="no name"),
        pytest.param(tar(BLOB_MEMBER, index(**{REF: "1"})), "has a tag only, '1'", id="a tag only"),
        pytest.param(tar(BLOB_MEMBER, index(**{REF: "A/B:1"})), "index.json: couldn't parse", id="a name that is none"),
        pytest.param(
            tar(BLOB_MEMBER, index(**{REF: "a/" * 20_000 + "!"})), "couldn't parse", id="a very long name that is none"
        ),
        pytest.param(
            tar(("c", b""), docker(*[f"a:{number}" for number in range(1001)], config="c", layers=())),
            "more than 1000 names",
            id="one image with too many names",
        ),
        pytest.param(tar(("index.json", b"{")), "index.json cannot be read", id="no JSON"),
        pytest.param(tar(("index.json", b"[" * 100_000)), "index.json cannot be read", id="deeply nested"),
        pytest.param(tar(("index.json", {"manifests": 5})), "index.json cannot be read", id="another shape"),
        pytest.param(tar(("manifest.json", [{}] * 1001)), "more than 1000 images", id="too many images"),
        pytest.param(
            tar(("index.json", b" " * (LONGEST_DOCUMENT + 1))), f"may have {LONGEST_DOCUMENT}", id="a long document"
        ),
        pytest.param(tar(("../x", b"")), "leads out of the archive", id="a path to the directory above"),
        pytest.param(tar(("/etc/passwd", b"")), "leads out of the archive", id="an absolute path"),
        pytest.param(tar(special(tarfile.CHRTYPE)), "neither a file nor a directory", id="a device"),
        pytest.param(tar(special(tarfile.FIFOTYPE)), "neither a file nor a directory", id="a pipe"),
        pytest.param(tar(special(tarfile.GNUTYPE_SPARSE)), "sparse file", id="a sparse file"),
        pytest.param(sparse(), "sparse file", id="a sparse file in the newer form"),
        pytest.param(
            b"\x28\xb5\x2f\xfd" + b"x" * 100, "compressed with zstd", id="a form of compression that is not known"
        ),
        pytest.param(long_header(), f"may have {LONGEST_HEADER}", id="a header without an end"),
        pytest.param(pax() * 3000 + tar(("x", b"")), "damaged one", id="thousands of headers for one member"),
        pytest.param(pax(GNU_sparse_realsize="much") + tar(("x", b"")), "damaged one", id="a size that is no number"),
        pytest.param(pax(GNU_sparse_map="a,b") + tar(("x", b"")), "damaged one", id="a map that has no numbers"),
        pytest.param(
            pax(GNU_sparse_map="0,0", GNU_sparse_size=1 << 62) + tar(("x", b"")),
            "sparse file",
            id="a sparse file in the second form",
        ),
        pytest.param(pax(size=1 << 62) + tar(("x", b"")), "damaged one", id="a size beyond all disks"),
    ],
)
def test_archives_that_are_refused(data, says):
    with pytest.raises(BadArchive, match=r"^[^\n]*$") as raised:
        read(data)
    assert says in str(raised.value)
    assert len(str(raised.value)) < 2000


def test_what_has_no_space_is_refused_before_it_is_read():
    with pytest.raises(BadArchive, match="free on the disk"):
        read(BUILT, space=1000)


def test_members_are_counted_even_if_they_have_the_same_name():
    with pytest.raises(BadArchive, match="more than 3 members"):
        read(tar(*[("x", b"")] * 4), most_members=3)


def test_headers_for_all_members_are_not_kept_with_each_of_them():
    header = pax(tarfile.XGLTYPE, **{f"k{number}": "" for number in range(5000)})
    data = header + tar(*[("x", b"")] * 200)
    tracemalloc.start()
    try:
        with pytest.raises(BadArchive, match="neither"):
            read(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


class Endless:
    """An archive behind which something follows without an end."""

    def __init__(self, start):
        self._start = io.BytesIO(start)
        self.given = 0

    def read(self, size):
        piece = self._start.read(size) or b"\0" * size
        self.given += len(piece)
        return piece


def test_what_follows_without_an_end_is_refused():
    source = Endless(BUILT)
    assert read_archive(source).names == ("klet.local/app:1",)
    with pytest.raises(BadArchive, match="follow the end"):
        read_rest(source)
    assert source.given < LONGEST_REST + (4 << 20)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1", "docker.io/library/busybox:1"),
        ("team/app:1", "docker.io/team/app:1"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        (f"registry.test/app@sha256:{'a' * 64}", f"registry.test/app@sha256:{'a' * 64}"),
    ],
)
def test_full_names(name, expected):
    assert full_name(name, "x") == expected
