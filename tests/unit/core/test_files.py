"""Files of data sets: found or an error that names the remedy, verified, taken from a folder, unpacked, made."""

import hashlib
import io
import os
import sys
import threading
import zipfile
from dataclasses import replace

import pytest

from crossmatch.core import obtain
from crossmatch.core.download import Wire, claimed
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.files import DataFile, DataSet, Recipe, Tally, find, glance, have, need, read_json, terms, verify

CATS, DOGS, NOTES = b"id,grade\n1,5\n2,4\n", b"id,grade\n7,3\n", b"some notes\n"
QUICK = Wire(timeout=5.0, tries=2, pause=0.0)


def sha(content):
    return hashlib.sha256(content).hexdigest()


def count_rows(*paths):
    return sum(len(path.read_text().splitlines()) - 1 for path in paths)


def declare(path, content, **more):
    return DataFile(path, sha(content), len(content), **more)


def upper(path):
    return path.read_text().upper()


def broken(path):
    return "not it"


CATS_FILE, DOGS_FILE = declare("pets/cats.csv", CATS), declare("pets/dogs.csv", DOGS)
NOTES_FILE = DataFile("pets/notes.txt", None, None, use="optional")
PETS = DataSet(
    "pets", "cats and dogs", "CC BY 4.0", "smith", (CATS_FILE, DOGS_FILE, NOTES_FILE), source="https://pets.example",
    tallies=(
        Tally("cats", 2, ("pets/cats.csv",), count_rows),
        Tally("pets", 3, ("pets/cats.csv", "pets/dogs.csv"), count_rows),
        Tally("notes", 1, ("pets/notes.txt",), lambda path: int(path.read_text())),
    ),
)  # fmt: skip


def put(folder, **contents):
    for name, content in contents.items():
        path = folder / name.replace("__", "/").replace("_csv", ".csv").replace("_txt", ".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refusal(function, *words, **more):
    with pytest.raises(CrossmatchError) as error:
        function(*words, **more)
    assert "\n" not in str(error.value)
    return str(error.value)


# Finding


def test_a_file_is_found_in_the_data_folder(tmp_path, monkeypatch):
    put(tmp_path, pets__cats_csv=CATS)
    assert need("pets/cats.csv", [PETS], tmp_path) == tmp_path / "pets/cats.csv"
    monkeypatch.setenv("CROSSMATCH_DATA", str(tmp_path))
    assert need("pets/cats.csv", [PETS]) == tmp_path / "pets/cats.csv"


def test_a_missing_file_is_named_with_its_remedy(tmp_path):
    assert refusal(need, "pets/cats.csv", [PETS], tmp_path) == (
        f"pets/cats.csv is not in the data folder {tmp_path}. Get it with `crossmatch data get pets`, "
        "or from a folder of yours with `crossmatch data get pets --from DIR`."
    )
    assert "`crossmatch data get pets --optional`" in refusal(need, "pets/notes.txt", [PETS], tmp_path)


@pytest.mark.parametrize("content", [b"", CATS[:-1], CATS + b"\n"])
def test_a_file_of_another_size_is_an_error_that_says_both_sizes(tmp_path, content):
    put(tmp_path, pets__cats_csv=content)
    said = refusal(need, "pets/cats.csv", [PETS], tmp_path)
    assert said.startswith(f"{tmp_path}/pets/cats.csv has {len(content)} bytes, but {len(CATS)} are expected")
    assert "`crossmatch data verify pets`" in said
    assert "`crossmatch data get pets`" in said
    assert refusal(have, "pets/cats.csv", [PETS], tmp_path) == said


def test_an_optional_file_is_there_or_not(tmp_path):
    assert have("pets/notes.txt", [PETS], tmp_path) is None
    put(tmp_path, pets__notes_txt=NOTES)
    assert have("pets/notes.txt", [PETS], tmp_path) == tmp_path / "pets/notes.txt"
    put(tmp_path, pets__notes_txt=b"")
    assert "has 0 bytes, but some are expected" in refusal(have, "pets/notes.txt", [PETS], tmp_path)


def test_an_undeclared_path_is_found_where_it_is(tmp_path):
    assert have("pets/images", [PETS], tmp_path) is None
    (tmp_path / "pets/images").mkdir(parents=True)
    assert have("pets/images", [PETS], tmp_path) == tmp_path / "pets/images"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with the file inside, which must not be imported."""
    inside = put(tmp_path / "site", noisy_pets__data__cats_csv=CATS)
    (inside / "noisy_pets/__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(inside))
    file = replace(CATS_FILE, package="noisy_pets/data/cats.csv")
    return replace(PETS, files=(file,), pip="noisy_pets==1.0", tallies=())


def test_a_file_inside_an_installed_package_is_found_without_importing_it(package, tmp_path):
    assert need("pets/cats.csv", [package], tmp_path / "data") == tmp_path / "site/noisy_pets/data/cats.csv"
    assert "noisy_pets" not in sys.modules
    put(tmp_path / "data", pets__cats_csv=CATS)
    assert need("pets/cats.csv", [package], tmp_path / "data") == tmp_path / "data/pets/cats.csv"  # the data folder comes first


def test_without_the_package_the_remedy_is_to_install_it(package, tmp_path, monkeypatch):
    absent = replace(package, files=(replace(CATS_FILE, package="no_such_pets/data/cats.csv"),))
    said = refusal(need, "pets/cats.csv", [absent], tmp_path / "data")
    assert "Get it with `pip install noisy_pets==1.0`, or `crossmatch data get pets`" in said


def test_a_module_without_a_spec_is_no_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "handmade", type(sys)("handmade"))
    sys.modules["handmade"].__spec__ = None
    assert find(replace(CATS_FILE, package="handmade/a.csv"), tmp_path) is None


# Verifying


def states(root, data_set=PETS):
    files, counts = verify(data_set, [data_set], root)
    return [seen.state for seen in files], [count.seen for count in counts], [thing.bad for thing in (*files, *counts)]


def test_all_is_right(tmp_path):
    put(tmp_path, pets__cats_csv=CATS, pets__dogs_csv=DOGS)
    assert states(tmp_path) == (["ok", "ok", "missing"], [2, 3, None], [False] * 6)


def test_one_changed_byte_is_seen_by_verify_and_not_at_a_glance(tmp_path):
    put(tmp_path, pets__cats_csv=CATS.replace(b"5", b"4"), pets__dogs_csv=DOGS)
    assert [seen.state for seen in glance(PETS, tmp_path)] == ["ok", "ok", "missing"]
    assert states(tmp_path) == (["wrong", "ok", "missing"], [None, None, None], [True] + [False] * 5)
    why = verify(PETS, [PETS], tmp_path)[0][0].why
    assert why == f"sha256 {sha(CATS.replace(b'5', b'4'))}, expected {sha(CATS)}"


def test_missing_and_short_files_are_wrong(tmp_path):
    put(tmp_path, pets__dogs_csv=DOGS[:3])
    assert states(tmp_path) == (["missing", "wrong", "missing"], [None] * 3, [True, True] + [False] * 4)
    assert [seen.state for seen in glance(PETS, tmp_path)] == ["missing", "wrong", "missing"]


def test_a_count_that_does_not_come_out_is_wrong(tmp_path):
    put(tmp_path, pets__cats_csv=CATS, pets__dogs_csv=DOGS)
    off = replace(PETS, tallies=(replace(PETS.tallies[0], expected=9),))
    assert states(tmp_path, off)[1:] == ([2], [False, False, False, True])


def test_a_file_without_a_known_hash_is_told_apart_and_may_still_be_unreadable(tmp_path):
    put(tmp_path, pets__cats_csv=CATS, pets__dogs_csv=DOGS, pets__notes_txt=b"1")
    assert states(tmp_path) == (["ok", "ok", "unknown"], [2, 3, 1], [False] * 6)
    put(tmp_path, pets__notes_txt=b"rubbish")
    assert states(tmp_path)[1:] == ([2, 3, None], [False] * 5 + [True])


def test_a_count_with_a_file_of_another_data_set_that_is_cut_short_is_left_out(tmp_path):
    put(tmp_path, pets__cats_csv=CATS[:4])
    other = DataSet("zoo", "", "", "", (), tallies=(PETS.tallies[0],))
    assert [count.seen for count in verify(other, [other, PETS], tmp_path)[1]] == [None]


def test_the_same_content_in_another_order_is_accepted(tmp_path):
    put(tmp_path, pets__cats_csv=CATS)
    file = replace(CATS_FILE, sha256=sha(CATS[::-1]), also=(sha(CATS),))
    assert states(tmp_path, replace(PETS, files=(file,), tallies=()))[0] == ["ok"]


def test_non_commercial_data_are_marked(capsys):
    assert terms(PETS) == "pets: CC BY 4.0 · https://pets.example"
    assert "NON-COMMERCIAL USE ONLY" in terms(replace(PETS, non_commercial=True))


def test_a_json_file_that_is_none(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"a": [1, 2')
    assert refusal(read_json, tmp_path / "a.json").startswith(f"{tmp_path}/a.json is not a json file (")
    (tmp_path / "a.json").write_bytes(b'{"a": "\xff"}')
    refusal(read_json, tmp_path / "a.json")
    (tmp_path / "a.json").write_text('{"a": [{"b": 1, "c": 2}], "d": 3}')
    assert read_json(tmp_path / "a.json", ["a", "c"]) == {"a": [{"c": 2}]}


# Taking files from a folder


def get(data_set, root, *, known=None, **more):
    lines = []
    obtain.get(data_set, known or [data_set], root, say=lines.append, wire=QUICK, **more)
    return lines


@pytest.mark.parametrize("layout", ["pets__{}_csv", "{}_csv", "some__deep__place__{}_csv"])
def test_files_at_hand_are_copied_from_any_layout(tmp_path, layout):
    hand = put(tmp_path / "hand", **{layout.format("cats"): CATS, layout.format("dogs"): DOGS})
    lines = get(PETS, tmp_path / "data", source=hand)
    assert tree(tmp_path / "data") == {"pets/cats.csv": CATS, "pets/dogs.csv": DOGS}
    assert lines[0] == "pets: CC BY 4.0 · https://pets.example"
    assert lines[1].startswith("pets/cats.csv: copied from ")
    assert get(PETS, tmp_path / "data", source=hand)[1:] == ["pets/cats.csv: here", "pets/dogs.csv: here"]


def test_files_at_hand_can_be_linked(tmp_path):
    hand = put(tmp_path / "hand", cats_csv=CATS, dogs_csv=DOGS)
    get(PETS, tmp_path / "data", source=hand, link=True)
    assert os.readlink(tmp_path / "data/pets/cats.csv") == str(hand / "cats.csv")
    assert tree(tmp_path / "data") == {"pets/cats.csv": CATS, "pets/dogs.csv": DOGS}
    (hand / "cats.csv").unlink()
    assert "is not in the data folder" in refusal(need, "pets/cats.csv", [PETS], tmp_path / "data")
    put(hand, cats_csv=CATS)
    get(PETS, tmp_path / "data", source=hand)
    (tmp_path / "data/pets/cats.csv").unlink()
    put(tmp_path / "data", pets__cats_csv=b"wrong")
    get(PETS, tmp_path / "data", source=hand, link=True)  # a link takes the place of a wrong file
    assert tree(tmp_path / "data")["pets/cats.csv"] == CATS


def test_what_is_wrong_or_missing_in_the_folder_is_said_in_one_line_and_the_rest_is_taken(tmp_path):
    hand = put(tmp_path / "hand", cats_csv=CATS[::-1], deep__dogs_csv=DOGS)
    said = refusal(get, PETS, tmp_path / "data", source=hand)
    assert said.startswith(
        f"pets lacks 1 of 2 files: pets/cats.csv: {hand}/cats.csv has sha256 {sha(CATS[::-1])}, expected {sha(CATS)}"
    )
    assert "`crossmatch data get pets`" in said
    assert tree(tmp_path / "data") == {"pets/dogs.csv": DOGS}
    (hand / "cats.csv").unlink()
    assert f"pets/cats.csv: there is no cats.csv in {hand} to take" in refusal(get, PETS, tmp_path / "data", source=hand)


def test_a_wrong_file_under_the_bare_name_does_not_hide_the_right_one(tmp_path):
    hand = put(tmp_path / "hand", cats_csv=CATS[::-1], z__cats_csv=CATS, dogs_csv=DOGS)
    get(PETS, tmp_path / "data", source=hand)
    assert tree(tmp_path / "data") == {"pets/cats.csv": CATS, "pets/dogs.csv": DOGS}


def test_a_wrong_file_in_the_data_folder_is_replaced_only_by_a_right_one(tmp_path):
    data = put(tmp_path / "data", pets__cats_csv=b"wrong", pets__dogs_csv=DOGS)
    refusal(get, PETS, data, source=put(tmp_path / "empty", other_csv=b"1"))
    assert tree(data)["pets/cats.csv"] == b"wrong"
    get(PETS, data, source=put(tmp_path / "hand", cats_csv=CATS))
    assert tree(data) == {"pets/cats.csv": CATS, "pets/dogs.csv": DOGS}


def test_optional_files_are_brought_when_asked_for(tmp_path):
    hand = put(tmp_path / "hand", cats_csv=CATS, dogs_csv=DOGS, notes_txt=NOTES)
    get(PETS, tmp_path / "data", source=hand)
    assert "pets/notes.txt" not in tree(tmp_path / "data")
    get(PETS, tmp_path / "data", source=hand, optional=True)
    assert tree(tmp_path / "data")["pets/notes.txt"] == NOTES


def test_what_is_in_the_installed_package_need_not_be_brought(package, tmp_path):
    assert get(package, tmp_path / "data")[1:] == ["pets/cats.csv: in the installed package"]
    assert not (tmp_path / "data").exists()


def test_with_a_folder_nothing_is_downloaded(server, tmp_path):
    server.content = CATS
    remote = replace(PETS, files=(replace(CATS_FILE, source_url=f"{server.url}/cats.csv"),), tallies=())
    refusal(get, remote, tmp_path / "data", source=put(tmp_path / "hand", other_csv=b"1"))
    assert server.paths == []
    get(remote, tmp_path / "data")
    assert server.paths == ["/cats.csv"]


def test_a_download_that_fails_names_file_address_and_ways_out(server, behave, tmp_path):
    server.script = [behave.status(404)]
    remote = replace(PETS, files=(replace(CATS_FILE, source_url=f"{server.url}/cats.csv"),), pip="pets==1", tallies=())
    assert refusal(get, remote, tmp_path / "data") == (
        f"pets is not complete: pets/cats.csv: {server.url}/cats.csv answered 404 Not Found. "
        "Try again (it continues where it stopped), "
        "take files at hand with `crossmatch data get pets --from DIR`, `pip install pets==1`, or see https://pets.example."
    )
    assert "it has no address" in refusal(get, PETS, tmp_path / "data")
    assert tree(tmp_path) == {}


def test_a_copy_waits_for_another_process(tmp_path):
    hand, lines = put(tmp_path / "hand", cats_csv=CATS), []
    alone = replace(PETS, files=(CATS_FILE,), tallies=())
    with claimed(tmp_path / "data/pets/cats.csv", print):
        thread = threading.Thread(target=lambda: lines.extend(get(alone, tmp_path / "data", source=hand)))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join()
    assert "waiting for another crossmatch that is bringing cats.csv" in lines
    assert tree(tmp_path / "data") == {"pets/cats.csv": CATS}


# Archives and recipes


def archive(**members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(f"inside/{name}.txt", content)
    return packed.getvalue()


def made_of(server, rules=(upper,)):
    """LOUD.txt is made from quiet.txt, which is a source inside an archive; notes.txt in the same archive is optional."""
    url = f"{server.url}/all.zip"
    return DataSet(
        "loud", "made by hand", "MIT", "smith",
        (
            declare("loud/LOUD.txt", b"A WORD\n", recipe=Recipe(("loud/quiet.txt",), rules)),
            DataFile("loud/quiet.txt", None, None, url, member="inside/quiet.txt", use="source"),
            DataFile("loud/notes.txt", None, None, url, member="inside/notes.txt", use="optional"),
        ),
    )  # fmt: skip


def test_a_file_is_made_from_a_downloaded_archive_of_which_nothing_is_left(server, behave, tmp_path):
    server.content = archive(quiet=b"a word\n", notes=NOTES)
    server.script = [behave.breaks_after(40), behave.honest]
    get(made_of(server), tmp_path)
    assert tree(tmp_path) == {"loud/LOUD.txt": b"A WORD\n"}
    assert server.ranges == [None, "bytes=40-"]
    server.ranges.clear()
    get(made_of(server), tmp_path, optional=True)
    assert tree(tmp_path) == {"loud/LOUD.txt": b"A WORD\n", "loud/notes.txt": NOTES}
    assert server.ranges == [None]


def test_the_archive_is_downloaded_once_for_all_its_members(server, tmp_path):
    server.content = archive(quiet=b"a word\n", notes=NOTES)
    get(made_of(server), tmp_path, optional=True)
    assert set(tree(tmp_path)) == {"loud/LOUD.txt", "loud/notes.txt"}
    assert server.ranges == [None]


@pytest.mark.parametrize("name", ["all.zip", "quiet.txt"])
def test_archives_and_ingredients_at_hand_are_used_where_they_are(server, tmp_path, name):
    hand = put(tmp_path / "hand", other_csv=b"")
    (hand / name).write_bytes(archive(quiet=b"a word\n") if name == "all.zip" else b"a word\n")
    get(made_of(server), tmp_path / "data", source=hand)
    assert tree(tmp_path / "data") == {"loud/LOUD.txt": b"A WORD\n"}
    assert (hand / name).exists()
    assert server.ranges == []


def test_an_archive_that_was_in_the_data_folder_stays_there(server, tmp_path):
    put(tmp_path, loud__x_csv=b"")
    (tmp_path / "loud/all.zip").write_bytes(archive(quiet=b"a word\n"))
    get(made_of(server), tmp_path)
    assert set(tree(tmp_path)) == {"loud/LOUD.txt", "loud/all.zip", "loud/x.csv"}


def corrupt(content):
    at = content.index(b"quiet.txt") + 14
    return content[:at] + bytes(255 - byte for byte in content[at : at + 4]) + content[at + 4 :]


@pytest.mark.parametrize("content", [b"no archive", archive(other=b"1"), corrupt(archive(quiet=b"a word\n" * 99))])
def test_a_bad_archive_is_told_and_removed(server, tmp_path, content):
    server.content = content
    said = refusal(get, made_of(server), tmp_path)
    assert "loud/LOUD.txt: it is made from loud/quiet.txt: " in said
    assert "all.zip has no readable inside/quiet.txt" in said
    assert tree(tmp_path) == {}


def test_a_made_file_must_have_the_declared_hash(server, tmp_path):
    server.content = archive(quiet=b"another word\n")
    said = refusal(get, made_of(server), tmp_path)
    assert f"sha256 {sha(b'ANOTHER WORD' + bytes([10]))}, expected {sha(b'A WORD' + bytes([10]))}" in said
    assert "those are not the official files" in said
    assert tree(tmp_path) == {}


def test_the_first_rule_that_gives_the_declared_hash_is_it(server, tmp_path):
    server.content = archive(quiet=b"a word\n")
    get(made_of(server, (broken, upper)), tmp_path)
    assert tree(tmp_path) == {"loud/LOUD.txt": b"A WORD\n"}


def test_an_ingredient_of_another_data_set_comes_with_its_own_terms(server, tmp_path):
    server.content = b"a word\n"
    quiet = DataSet("quiet", "", "CC BY-NC 4.0", "", (DataFile("q/quiet.txt", None, None, f"{server.url}/q"),), non_commercial=True)
    loud = DataSet("loud", "", "MIT", "", (declare("loud/LOUD.txt", b"A WORD\n", recipe=Recipe(("q/quiet.txt",), (upper,))),))
    lines = get(loud, tmp_path, known=[loud, quiet])
    assert lines[:2] == ["loud: MIT", "quiet: NON-COMMERCIAL USE ONLY, CC BY-NC 4.0"]
    assert set(tree(tmp_path)) == {"loud/LOUD.txt", "q/quiet.txt"}
    (tmp_path / "loud/LOUD.txt").unlink()
    assert get(loud, tmp_path, known=[loud, quiet])[:2] == ["loud: MIT", "q/quiet.txt: here"]
    (tmp_path / "loud/LOUD.txt").unlink()
    assert "made from q/quiet.txt, which no data set declares" in refusal(get, loud, tmp_path)


def test_a_file_in_an_archive_that_has_another_hash_is_refused(server, tmp_path):
    server.content = archive(notes=NOTES)
    url = f"{server.url}/all.zip"
    one = DataSet("one", "", "", "", (declare("one/notes.txt", b"other notes", source_url=url, member="inside/notes.txt"),))
    assert f"one/notes.txt: it came out with sha256 {sha(NOTES)}, expected {sha(b'other notes')}" in refusal(get, one, tmp_path)
    assert tree(tmp_path) == {}
