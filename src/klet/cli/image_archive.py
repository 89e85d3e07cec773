"""Reads an image archive, of OCI or of `docker save`, from beginning to end as it passes by, and says what is in it.

What comes in such a file is not trusted: its members are counted, its documents bounded, and each blob compared with
the digest that names it.
"""

import bz2
import gzip
import hashlib
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import PurePosixPath
from typing import IO, Final, NoReturn, Protocol, Self, TypeVar, cast

import msgspec
from msgspec import Struct

from klet.errors import KletError
from klet.images.names import ImageNameError, repository_of, with_default_tag
from klet.model.foreign_text import LONGEST_WORD, shorten

T = TypeVar("T")

PIECE: Final = 1 << 20
MOST_MEMBERS: Final = 100_000
LONGEST_DOCUMENT: Final = 8 << 20
"""Bytes of `index.json` and `manifest.json`, which containerd bounds the same way."""
MOST_IMAGES: Final = 1000
LONGEST_MESSAGE: Final = 500
LONGEST_HEADER: Final = 1 << 20
"""Bytes of a header with long names, which are read at once."""
LONGEST_REST: Final = 64 << 20
"""Bytes of padding after the end of the archive."""
_COMPRESSIONS: Final[Mapping[bytes, Callable[[BufferedReader], IO[bytes]]]] = {
    b"\x1f\x8b": lambda source: cast("IO[bytes]", gzip.GzipFile(fileobj=source)),
    b"BZh": lambda source: cast("IO[bytes]", bz2.BZ2File(source)),
    b"\xfd7zXZ": lambda source: cast("IO[bytes]", lzma.LZMAFile(source)),  # noqa: SIM115 - who opened the file closes it
}
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_LONGEST_MAGIC: Final = 6
_BLOB: Final = re.compile(r"blobs/(sha256)/([0-9a-f]{64})", re.ASCII)
_NAME: Final = "io.containerd.image.name"
_SPARSE: Final = "it has a sparse file, which no image archive needs"
_REF_NAME: Final = "org.opencontainers.image.ref.name"


class BadArchive(KletError):
    """A file that is no image archive, or a damaged one."""


class ByteSource(Protocol):
    """Where the bytes of an archive come from."""

    def read(self, size: int, /) -> bytes: ...


class ImageArchive(Struct, frozen=True, kw_only=True):
    """What an archive holds."""

    names: tuple[str, ...]
    """In full, as the runtime has to know the images."""
    short_names: tuple[tuple[str, str], ...] = ()
    """Names under which containerd keeps images and the CRI does not find them, each with its full form."""
    blobs: int
    size: int
    """Bytes of its members."""


class _Descriptor(Struct, frozen=True, rename="camel"):
    digest: str = ""
    annotations: Mapping[str, str] = {}


class _Index(Struct, frozen=True, rename="camel"):
    manifests: tuple[_Descriptor, ...] = ()


class _DockerImage(Struct, frozen=True, rename="pascal"):
    config: str = ""
    repo_tags: tuple[str, ...] | None = None
    layers: tuple[str, ...] | None = None


def decompressed(source: BufferedReader) -> IO[bytes]:
    """Return the bytes of a file, decompressed if it is compressed. Raises BadArchive for a form that is not known."""
    start = source.peek(_LONGEST_MAGIC)[:_LONGEST_MAGIC]
    if start.startswith(_ZSTD):
        raise BadArchive("it is compressed with zstd: decompress it first (zstd -d)")
    for magic, opened in _COMPRESSIONS.items():
        if start.startswith(magic):
            return opened(source)
    return source


def read_archive(
    source: ByteSource, *, base_name: str = "", space: int | None = None, most_members: int = MOST_MEMBERS
) -> ImageArchive:
    """Read one that is not compressed (any more), to its end mark. Raises BadArchive.

    `base_name` is the repository of images that the archive names by a tag alone. `space` is how many bytes the disk
    has for it.
    """
    reader = _MemberReader(space=space, most_members=most_members)
    with (
        _as_bad_archive(),
        tarfile.open(fileobj=cast("IO[bytes]", source), mode="r|", bufsize=PIECE, tarinfo=_PlainMember) as archive,
    ):
        for member in archive:
            reader.take(archive, member)
            # It keeps all members, and with each a copy of the global headers before it.
            archive.members.clear()  # type: ignore[attr-defined]  # typeshed leaves it out
    return reader.conclude(base_name)


def read_rest(source: ByteSource) -> None:
    """Read what follows an archive: the padding that some programs write. Raises BadArchive."""
    rest = 0
    with _as_bad_archive():
        while piece := source.read(PIECE):
            rest += len(piece)
            if rest > LONGEST_REST:
                raise BadArchive(f"more than {LONGEST_REST} bytes follow the end of the archive")


@contextmanager
def _as_bad_archive() -> Iterator[None]:
    """Raise what tarfile and the decompressors complain about as BadArchive; errors of the disk stay.

    tarfile reads numbers in headers without a check, and calls itself for each of several headers of one member.
    """
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise BadArchive(f"it is no tar archive, or a damaged one: {error}") from error


class _PlainMember(tarfile.TarInfo):
    """A member whose headers are bounded. What images never have is refused before it is read: maps of sparse files."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if member.type == tarfile.GNUTYPE_SPARSE:
            raise BadArchive(_SPARSE)
        is_plain = member.isreg() or member.isdir() or member.issym() or member.islnk()
        if not is_plain and member.size > LONGEST_HEADER:
            raise BadArchive(f"one of its headers has {member.size} bytes, and may have {LONGEST_HEADER}")
        return member

    def _proc_gnusparse_10(self, *_: object) -> NoReturn:
        raise BadArchive(_SPARSE)


class _MemberReader:
    """Takes the members one after the other, in whatever order they come."""

    def __init__(self, *, space: int | None, most_members: int) -> None:
        self._space = space
        self._most_members = most_members
        self._members = 0
        self._seen: set[str] = set()
        self._documents: dict[str, bytes] = {}
        self._size = 0
        self._blobs = 0

    def take(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name = _checked_name(member)
        self._seen.add(name)
        self._members += 1
        if self._members > self._most_members:
            raise BadArchive(f"it has more than {self._most_members} members")
        if not member.isreg():
            return
        self._size += member.size
        if self._space is not None and self._size > self._space:
            raise BadArchive(f"it holds more than the {self._space} bytes that are free on the disk of the images")
        content = archive.extractfile(member)
        assert content is not None, "a regular file has content"
        if name in {"index.json", "manifest.json"}:
            if member.size > LONGEST_DOCUMENT:
                raise BadArchive(f"{name} has {member.size} bytes, and may have {LONGEST_DOCUMENT}")
            self._documents[name] = content.read()
        elif (blob := _BLOB.fullmatch(name)) is not None:
            self._blobs += 1
            if _hash(content) != blob[2]:
                raise BadArchive(f"{name} is damaged: its content has another digest")
        else:
            # To skip more than there is, tarfile would count up to the size that is claimed.
            while content.read(PIECE):
                pass

    def conclude(self, base_name: str) -> ImageArchive:
        """Return what was found, if it is complete."""
        if not self._documents:
            raise BadArchive("it holds neither index.json nor manifest.json: it is no archive of OCI or `docker save`")
        names: Mapping[str, str] = {}
        if (text := self._documents.get("manifest.json")) is not None:
            images = _decode(text, tuple[_DockerImage, ...], "manifest.json")
            names = self._docker_names(images)
        # Of an archive that has both, containerd reads one.
        is_oci = "oci-layout" in self._seen or "manifest.json" not in self._documents
        if is_oci and (text := self._documents.get("index.json")) is not None:
            index = _decode(text, _Index, "index.json")
            names = self._index_names(index, base_name)
        if len(names) > MOST_IMAGES:
            raise BadArchive(f"its images have more than {MOST_IMAGES} names")
        if not names:
            raise BadArchive("none of its images has a name: save it by its name, not by its id")
        return ImageArchive(
            names=tuple(dict.fromkeys(names.values())),
            short_names=tuple((name, full) for name, full in names.items() if name != full),
            blobs=self._blobs,
            size=self._size,
        )

    def _docker_names(self, images: Sequence[_DockerImage]) -> Mapping[str, str]:
        """Return names in full, which containerd itself makes of these."""
        if len(images) > MOST_IMAGES:
            raise BadArchive(f"manifest.json has more than {MOST_IMAGES} images")
        for image in images:
            for path in (image.config, *(image.layers or ())):
                if _plain(path) not in self._seen:
                    raise BadArchive(
                        f"manifest.json names {shorten(path, LONGEST_WORD)!r}, which is not in the archive"
                    )
        names = [full_name(tag, "manifest.json") for image in images for tag in image.repo_tags or ()]
        return dict(zip(names, names, strict=True))

    def _index_names(self, index: _Index, base_name: str) -> Mapping[str, str]:
        """Return the names that containerd takes, each with its full form."""
        if len(index.manifests) > MOST_IMAGES:
            raise BadArchive(f"index.json has more than {MOST_IMAGES} images")
        found = {}
        for each in index.manifests:
            if _plain(f"blobs/{each.digest.replace(':', '/')}") not in self._seen:
                digest = shorten(each.digest, LONGEST_WORD)
                raise BadArchive(f"index.json names the blob {digest!r}, which is not in the archive")
            own = each.annotations.get(_NAME, "")
            name = own or each.annotations.get(_REF_NAME, "")
            if not name:
                continue
            where = "index.json"
            # A name without any of these signs is a tag.
            if not any(sign in name for sign in "/:@"):
                if not base_name:
                    tag = shorten(name, LONGEST_WORD)
                    raise BadArchive(f"its image has a tag only, {tag!r}: give the repository with --name")
                name, where = f"{base_name}:{name}", "--name"
            elif base_name and not name.startswith(f"{base_name}:"):
                raise BadArchive(f"its image has a name of its own, {shorten(name, LONGEST_WORD)!r}: leave --name out")
            # containerd takes a name of its own kind as it is, and puts the repository only before a tag of OCI.
            found[own or name] = full_name(name, where)
        return found


def full_name(name: str, where: str) -> str:
    """Return a name with host, repository and tag, as containerd keeps it; raises BadArchive."""
    try:
        tagged = with_default_tag(name)
        repository = repository_of(name)
    except ImageNameError as error:
        raise BadArchive(f"{where}: {shorten(str(error), LONGEST_MESSAGE)}") from error
    rest = tagged.rpartition("/")[2]
    sign = "@" if "@" in rest else ":"
    return f"{repository}{sign}{rest.partition(sign)[2]}"


def _checked_name(member: tarfile.TarInfo) -> str:
    name = _plain(member.name)
    shown = shorten(member.name, LONGEST_WORD)
    if member.issparse():
        raise BadArchive(_SPARSE)
    if member.name.startswith("/") or ".." in PurePosixPath(member.name).parts:
        raise BadArchive(f"its member {shown!r} has a path that leads out of the archive")
    # `docker save` has written links between equal layers.
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise BadArchive(f"its member {shown!r} is neither a file nor a directory")
    return name


def _plain(path: str) -> str:
    return str(PurePosixPath(path))


def _hash(content: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while piece := content.read(PIECE):
        digest.update(piece)
    return digest.hexdigest()


def _decode(text: bytes, kind: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadArchive(f"{where} cannot be read: {error}") from error
