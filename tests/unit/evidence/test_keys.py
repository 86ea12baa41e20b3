"""The log's key pair: made once, private, readable by openssl."""

import stat
import subprocess

import pytest

from affidavit.libs.evidence.keys import KeyFileError, create_key, load_key, load_public_key


def test_a_new_pair_is_private_and_comes_back_the_same(tmp_path) -> None:
    folder = tmp_path / "keys"
    made = create_key(folder)
    assert stat.S_IMODE((folder / "log.key").stat().st_mode) == 0o600
    assert load_key(folder).private_bytes_raw() == made.private_bytes_raw()
    assert load_public_key(folder / "log.pub").public_bytes_raw() == made.public_key().public_bytes_raw()
    assert sorted(p.name for p in folder.iterdir()) == ["log.key", "log.pub"]


def test_openssl_derives_the_same_public_key(tmp_path) -> None:
    create_key(tmp_path)
    done = subprocess.run(["openssl", "pkey", "-in", tmp_path / "log.key", "-pubout"], capture_output=True, check=True)
    assert done.stdout == (tmp_path / "log.pub").read_bytes()


def test_a_key_that_is_there_is_never_replaced(tmp_path) -> None:
    made = create_key(tmp_path)
    with pytest.raises(FileExistsError):
        create_key(tmp_path)
    assert load_key(tmp_path).private_bytes_raw() == made.private_bytes_raw()


def test_a_lost_public_half_is_written_again(tmp_path) -> None:
    create_key(tmp_path)
    before = (tmp_path / "log.pub").read_bytes()
    (tmp_path / "log.pub").unlink()
    load_key(tmp_path)
    assert (tmp_path / "log.pub").read_bytes() == before


def test_keys_that_cannot_be_trusted_are_refused(tmp_path) -> None:
    create_key(tmp_path / "a")
    create_key(tmp_path / "b")
    (tmp_path / "a" / "log.key").chmod(0o644)
    with pytest.raises(KeyFileError, match="chmod 600"):
        load_key(tmp_path / "a")
    (tmp_path / "b" / "log.pub").write_bytes((tmp_path / "a" / "log.pub").read_bytes())
    with pytest.raises(KeyFileError, match="public half"):
        load_key(tmp_path / "b")
    (tmp_path / "b" / "log.key").write_text("nonsense")
    with pytest.raises(KeyFileError, match="PEM"):
        load_key(tmp_path / "b")
    with pytest.raises(FileNotFoundError):
        load_key(tmp_path / "c")
