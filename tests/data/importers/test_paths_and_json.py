import json
import os
from pathlib import Path

import pytest

from vlm.data.importers.files import read_json_file, read_json_lines
from vlm.data.importers.paths import inside
from vlm.data.importers.rows import Bad, BadRowError, text
from vlm.errors import UserError


def test_a_name_leads_to_a_file_under_the_folder_and_nowhere_else(tmp_path: Path):
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    (root / "deep/a.png").write_bytes(b"a")
    (tmp_path / "b.png").write_bytes(b"b")
    (root / "out.png").symlink_to(tmp_path / "b.png")
    (root / "in.png").symlink_to(root / "deep/a.png")
    (root / "link").symlink_to(root / "deep")
    os.mkfifo(root / "pipe")
    assert inside(root, "deep/a.png").read_bytes() == b"a"
    for name in (
        *("../b.png", "deep/../../b.png", "deep/../deep/a.png", str(tmp_path / "b.png"), ".."),
        *("out.png", "in.png", "link/a.png", "deep", ".", "", "pipe", "none.png", "deep/a.png/b"),
        *("a\0.png", "a\n.png", "\ud800", "x" * 5000, None, 3, ["deep/a.png"]),
    ):
        with pytest.raises(BadRowError, match="expected a file under") as caught:
            inside(root, name)
        assert len(str(caught.value).splitlines()) == 1
    (tmp_path / "linked").symlink_to(root)
    assert inside(tmp_path / "linked", "deep/a.png").read_bytes() == b"a"  # the folder itself may


def test_a_text_is_one_line_without_control_characters():
    assert text("  Is it\n a\tplus? ", "question") == "Is it a plus?"
    assert text("où 💡", "question") == "où 💡"
    for value in (None, 3, 1.5, [], "", " \n", "a\0b", "a\x1bb", "\ud800", True):
        with pytest.raises(BadRowError, match=r"^question: got .*, expected"):
            text(value, "question")


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (b"", "no JSON at character 1"),
        (b'[{"a": 1},\n{"a": }]', "no JSON at character 7 of line 2"),
        (b'["\xff"]', "bytes that are no UTF-8"),
        (b"[NaN]", "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b"[1e999]", "a number too large"),
        (b"[" + b"9" * 5000 + b"]", "a number too large"),
        (b"[" * 100_000, "lists or objects nested too deep"),
        (b'{"a": 1}', "{'a': 1}"),
        (b"3", "3"),
    ],
)
def test_a_file_that_is_no_json_is_named(tmp_path: Path, content: bytes, got: str):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_json_file(tmp_path, "a.json", list)
    assert str(caught.value) == f"{tmp_path}/a.json: got {got}, expected JSON: a list"


def test_a_file_that_is_none_is_named(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    for name, got in (("a.json", "no such file"), ("folder", "a folder or device")):
        with pytest.raises(UserError, match=f"{name}: got {got}, expected JSON: an object"):
            read_json_file(tmp_path, name, dict)
        with pytest.raises(UserError, match=f"{name}: got {got}, expected JSON Lines"):
            list(read_json_lines(tmp_path, name))


def test_a_byte_order_mark_is_left_out(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf" + json.dumps({"é": 1}).encode())
    assert read_json_file(tmp_path, "a", dict) == {"é": 1}
    assert list(read_json_lines(tmp_path, "a")) == [("a line 1", {"é": 1})]


def test_a_bad_line_is_one_bad_row(tmp_path: Path):
    lines = [b'{"a": 1}', b"", b'{"a": ', b"\xff", b"3", b"9" * 5000, b"[" * 100_000, b'{"a": 2}']
    (tmp_path / "a").write_bytes(b"\r\n".join(lines))
    rows = list(read_json_lines(tmp_path, "a"))
    assert rows[0] == ("a line 1", {"a": 1}) and rows[-1] == ("a line 8", {"a": 2})
    assert [row.row for row in rows if isinstance(row, Bad)] == [f"a line {n}" for n in range(3, 8)]
