# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo does with folders and paths, without training anything."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from recipe.crosscheck import demo
from recipe.crosscheck.launch import override


@pytest.mark.parametrize(
    "path",
    ["/plain", "/with space", "/\u00e4/\u4e2d", "/it's", "/a,b=c", "~/x", "/(x)#&[y]{z}", "/back\\slash\\", "/odd\\'"],
)
def test_hydra_reads_any_path_as_it_is(path):
    parsed = OverridesParser.create().parse_override(override("trainer.share_data_dir", path))
    assert parsed.key_or_group == "trainer.share_data_dir"
    assert parsed.value() == path


def test_a_fresh_folder_is_made_and_an_earlier_demos_is_emptied(tmp_path):
    out = tmp_path / "new" / "out"
    demo.claim(out)
    (out / "a").mkdir()
    (out / "a" / "run.log").touch()
    (out / "summary.json").touch()
    (out / "notes").touch()
    demo.claim(out)
    assert sorted(path.name for path in out.iterdir()) == [demo.MARKER, "notes"]


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path, capsys):
    (tmp_path / "share").mkdir()
    (tmp_path / "share" / "thesis").write_text("precious")
    with pytest.raises(SystemExit):
        demo.parse(["--out", str(tmp_path)])
    assert "not empty, and not of an earlier demo" in capsys.readouterr().err
    assert (tmp_path / "share" / "thesis").read_text() == "precious"


def test_a_link_in_an_earlier_demos_folder_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "thesis").touch()
    demo.claim(tmp_path / "out")
    (tmp_path / "out" / "a").symlink_to(tmp_path / "elsewhere")
    demo.claim(tmp_path / "out")
    assert (tmp_path / "elsewhere" / "thesis").exists()


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        demo.parse(["--out", str(tmp_path / "file")])
    assert "--out" in capsys.readouterr().err
