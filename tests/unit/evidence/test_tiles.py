"""A published log is read as C2SP writes it: other people's, ours, from a folder and from a plain file server."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.note import NoteError, TreeHead, Verifier
from affidavit.libs.evidence.tilepaths import entries_path, number_path, tile_path, tile_widths
from affidavit.libs.evidence.tiles import TileError, TileReader, bundle_bytes, folder_tiles, parse_bundle, url_tiles

TESSERA = Path(__file__).parents[3].parent / "shared" / "data" / "tlog" / "log"
KEY = Verifier.parse("example.com/log/testdata+33d7b496+AeHTu4Q3hEIMHNqc6fASMsq3rKNx280NI+oO5xCFkkSx")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    """Tessera's log behind a server that knows nothing but files."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(TESSERA)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_numbers_and_widths_make_the_paths_of_the_specification() -> None:
    assert number_path(1234067) == "x001/x234/067"  # the specification's own example
    assert [number_path(n) for n in (0, 999, 1000, 1_000_000)] == ["000", "999", "x001/000", "x001/x000/000"]
    assert tile_path(2, 0, 1) == "tile/2/000.p/1"
    assert tile_path(0, 1000) == "tile/0/x001/000"
    assert entries_path(273, 112) == "tile/entries/273.p/112"
    assert [tile_widths(level, 70_000) for level in range(3)] == [[256] * 273 + [112], [256, 17], [1]]
    assert tile_widths(0, 0) == []
    assert tile_widths(3, 70_000) == []
    for bad in ((-1, 256), (0, 0), (0, 257)):
        with pytest.raises(ValueError, match="no tile"):
            entries_path(*bad)


def test_every_checkpoint_of_tesseras_log_is_signed_and_its_root_follows_from_the_entries() -> None:
    reader = TileReader(folder_tiles(TESSERA))
    all_leaves = list(reader.leaves(reader.head([KEY])))
    assert len(all_leaves) == 15
    for size in range(16):
        head = reader.head([KEY], f"checkpoint.{size}")
        assert head.size == size
        assert list(reader.leaves(head)) == all_leaves[:size]
        assert merkle.root(size, reader.node(size)) == head.root


def test_every_two_sizes_of_tesseras_log_are_consistent_and_every_leaf_is_in_every_tree() -> None:
    reader = TileReader(folder_tiles(TESSERA))
    heads = [reader.head([KEY], f"checkpoint.{size}") for size in range(16)]
    leaves = list(reader.leaves(heads[15]))
    pairs = 0
    for second in range(1, 16):
        node = reader.node(second)
        for first in range(1, second + 1):
            proof = merkle.prove_consistency(first, second, node)
            merkle.verify_consistency(first, second, heads[first].root, heads[second].root, proof)
            pairs += 1
        for index in range(second):
            path = merkle.prove_inclusion(index, second, node)
            merkle.verify_inclusion(index, second, merkle.leaf_hash(leaves[index]), path, heads[second].root)
    assert pairs == 120


def test_a_static_file_server_is_enough(url) -> None:
    here, there = TileReader(folder_tiles(TESSERA)), TileReader(url_tiles(url))
    head = there.head([KEY])
    assert head == here.head([KEY])
    assert list(there.leaves(head)) == list(here.leaves(head))
    with pytest.raises(TileError, match=r"checkpoint\.99 is missing"):
        there.head([KEY], "checkpoint.99")
    with pytest.raises(ValueError, match="neither http nor https"):
        url_tiles("ftp://127.0.0.1/")


def test_another_key_opens_no_checkpoint() -> None:
    other = Verifier("example.com/other", KEY.key)
    with pytest.raises(NoteError):
        TileReader(folder_tiles(TESSERA)).head([other])


class _Made:
    """A log of `size` small leaves, as files in memory; 70,000 need three levels of tiles."""

    def __init__(self, size: int) -> None:
        self.leaves = [b"leaf %d" % n for n in range(size)]
        frontier = merkle.Frontier()
        nodes = {
            (level, index): digest for leaf in self.leaves for level, index, digest in frontier.append(_hash(leaf))
        }
        self.head = TreeHead("example.com/made", size, frontier.root())
        self.files: dict[str, bytes] = {}
        for number, width in enumerate(tile_widths(0, size)):
            self.files[entries_path(number, width)] = bundle_bytes(self.leaves[number * 256 :][:width])
        for level in range(4):
            for number, width in enumerate(tile_widths(level, size)):
                hashes = [nodes[8 * level, number * 256 + n] for n in range(width)]
                self.files[tile_path(level, number, width)] = b"".join(hashes)

    def fetch(self, path: str) -> bytes:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def read(self) -> list[bytes]:
        return list(TileReader(self.fetch).leaves(self.head))


def _hash(leaf: bytes) -> bytes:
    return merkle.leaf_hash(leaf)


@pytest.fixture(scope="module")
def made() -> _Made:
    return _Made(66_000)


def test_tiles_of_three_levels_give_every_leaf_and_any_proof(made) -> None:
    assert made.read() == made.leaves
    node = TileReader(made.fetch).node(66_000)
    assert merkle.root(66_000, node) == made.head.root
    for index in (0, 255, 256, 65_535, 65_536, 65_999):
        path = merkle.prove_inclusion(index, 66_000, node)
        merkle.verify_inclusion(index, 66_000, _hash(made.leaves[index]), path, made.head.root)


def test_a_changed_or_missing_file_of_any_kind_is_named(made) -> None:
    assert made.read() == made.leaves
    for path in (
        "tile/entries/000",
        "tile/entries/257.p/208",
        "tile/0/100",
        "tile/1/000",
        "tile/1/001.p/1",
        "tile/2/000.p/1",
    ):
        whole = made.files[path]
        for changed in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-1], whole + b"\0", b""):
            made.files[path] = changed
            with pytest.raises(TileError) as caught:
                made.read()
            assert "entries" not in path or path in str(caught.value)
        del made.files[path]
        with pytest.raises(TileError, match=f"{path} is missing"):
            made.read()
        made.files[path] = whole
    assert made.read() == made.leaves


def test_a_record_that_was_changed_is_named_by_its_index(made) -> None:
    path, index = "tile/entries/003", 3 * 256 + 17
    whole = made.files[path]
    leaves = parse_bundle(whole)
    leaves[17] = b"other"
    made.files[path] = bundle_bytes(leaves)
    with pytest.raises(TileError, match=f"record {index} is not what was signed"):
        made.read()
    made.files[path] = whole


def test_a_full_tile_stands_in_for_a_partial_one_that_was_deleted() -> None:
    grown, earlier = _Made(256), _Made(200)
    assert list(TileReader(grown.fetch).leaves(earlier.head)) == earlier.leaves
    del grown.files["tile/entries/000"]
    with pytest.raises(TileError, match="missing"):
        list(TileReader(grown.fetch).leaves(earlier.head))


def test_an_entry_of_65535_bytes_fits_in_a_bundle_and_a_longer_one_does_not() -> None:
    assert parse_bundle(bundle_bytes([b"", b"x" * 65_535])) == [b"", b"x" * 65_535]
    with pytest.raises(ValueError, match="65535"):
        bundle_bytes([b"x" * 65_536])
