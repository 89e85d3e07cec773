from klet.testing.vm.initramfs import build_archive, module_files


def test_the_archive_has_the_form_that_the_kernel_reads():
    archive = build_archive(("bin",), {"bin/tool": (b"#!/bin/sh\n", 0o755)})
    # "newc": a magic number, thirteen fields of eight digits, the name, and everything in steps of four bytes.
    assert archive.startswith(b"070701" + b"00000000" + b"000041ED")
    second = archive.index(b"070701", 6)
    assert second % 4 == 0
    assert archive[second + 14 : second + 22] == b"000081ED"
    assert archive[second + 54 : second + 62] == b"0000000A"
    assert archive.endswith(b"TRAILER!!!\0".ljust(14, b"\0"))
    assert len(archive) % 4 == 0


def test_modules_come_after_those_they_need(tmp_path):
    (tmp_path / "modules.dep").write_text("a/one.ko: b/two.ko c/three.ko\nb/two.ko: c/three.ko\nc/three.ko:\n")
    assert module_files(tmp_path, ("one",)) == [tmp_path / "c/three.ko", tmp_path / "b/two.ko", tmp_path / "a/one.ko"]
