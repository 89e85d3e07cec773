from klet.testing.vm.debian import read_pins


def test_pins_keep_the_hashes_of_their_package(tmp_path):
    lock = tmp_path / "lock"
    one = "One==1.0 \\\n    --hash=sha256:aa\n"
    two = "two-more==2.0 ; python_version < '4' \\\n    --hash=sha256:bb\n"
    lock.write_text(f"# a comment\n{one}{two}")
    assert read_pins(lock) == {"one": one, "two-more": two}
