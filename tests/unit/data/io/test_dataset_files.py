"""Files of data sets: finding, verifying, copying, unpacking, and building them by recipes."""

import hashlib
import io
import os
import sys
import threading
import zipfile
from dataclasses import replace

import pytest

from crossmatch.data.io import dataset_install
from crossmatch.data.io.dataset_files import (
    CountCheck,
    DataFile,
    DataSet,
    FileRecipe,
    check_sizes,
    find_file,
    find_optional,
    licence_notice,
    require_file,
    verify_data_set,
)
from crossmatch.data.io.file_contents import read_json
from crossmatch.data.io.http_download import RetryPolicy, locked_part_file
from error_messages import error_message
from polling import LIMIT, wait_until

CATS, DOGS, NOTES = b"id,grade\n1,5\n2,4\n", b"id,grade\n7,3\n", b"some notes\n"
QUICK = RetryPolicy(timeout=LIMIT, tries=2, pause=0.0)


def sha(content):
    return hashlib.sha256(content).hexdigest()


def count_rows(*paths):
    return sum(len(path.read_text().splitlines()) - 1 for path in paths)


def declare(path, content, **options):
    return DataFile(path, sha(content), len(content), **options)


def make_upper_case(path):
    return path.read_text().upper()


def make_wrong_text(path):
    return "not it"


CATS_FILE, DOGS_FILE = declare("pets/cats.csv", CATS), declare("pets/dogs.csv", DOGS)
NOTES_FILE = DataFile("pets/notes.txt", None, None, use="optional")
PETS = DataSet(
    "pets", "cats and dogs", "CC BY 4.0", "smith", (CATS_FILE, DOGS_FILE, NOTES_FILE), homepage="https://pets.example",
    count_checks=(
        CountCheck("cats", 2, ("pets/cats.csv",), count_rows),
        CountCheck("pets", 3, ("pets/cats.csv", "pets/dogs.csv"), count_rows),
        CountCheck("notes", 1, ("pets/notes.txt",), lambda path: int(path.read_text())),
    ),
)  # fmt: skip


def write_files(folder, **contents):
    for name, content in contents.items():
        path = folder / name.replace("__", "/").replace("_csv", ".csv").replace("_txt", ".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def read_tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# Finding


def test_a_file_is_found_in_the_data_folder(tmp_path, monkeypatch):
    write_files(tmp_path, pets__cats_csv=CATS)
    assert require_file("pets/cats.csv", [PETS], tmp_path) == tmp_path / "pets/cats.csv"
    monkeypatch.setenv("CROSSMATCH_DATA", str(tmp_path))
    assert require_file("pets/cats.csv", [PETS]) == tmp_path / "pets/cats.csv"


def test_missing_file_is_an_error_with_a_remedy(tmp_path):
    assert error_message(require_file, "pets/cats.csv", [PETS], tmp_path) == (
        f"pets/cats.csv is not in the data folder {tmp_path}. Get it with `crossmatch data get pets`, "
        "or from a local folder with `crossmatch data get pets --from DIR`."
    )
    assert "`crossmatch data get pets --optional`" in error_message(require_file, "pets/notes.txt", [PETS], tmp_path)


@pytest.mark.parametrize("content", [b"", CATS[:-1], CATS + b"\n"])
def test_file_of_another_size_is_an_error(tmp_path, content):
    write_files(tmp_path, pets__cats_csv=content)
    message = error_message(require_file, "pets/cats.csv", [PETS], tmp_path)
    assert message.startswith(f"{tmp_path}/pets/cats.csv has {len(content)} bytes, expected {len(CATS)}")
    assert "`crossmatch data verify pets`" in message
    assert "`crossmatch data get pets`" in message
    assert error_message(find_optional, "pets/cats.csv", [PETS], tmp_path) == message


def test_optional_file_may_be_missing(tmp_path):
    assert find_optional("pets/notes.txt", [PETS], tmp_path) is None
    write_files(tmp_path, pets__notes_txt=NOTES)
    assert find_optional("pets/notes.txt", [PETS], tmp_path) == tmp_path / "pets/notes.txt"
    write_files(tmp_path, pets__notes_txt=b"")
    assert "has 0 bytes, expected more" in error_message(find_optional, "pets/notes.txt", [PETS], tmp_path)


def test_undeclared_path_is_found(tmp_path):
    assert find_optional("pets/images", [PETS], tmp_path) is None
    (tmp_path / "pets/images").mkdir(parents=True)
    assert find_optional("pets/images", [PETS], tmp_path) == tmp_path / "pets/images"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with the file inside, which must not be imported."""
    inside = write_files(tmp_path / "site", noisy_pets__data__cats_csv=CATS)
    (inside / "noisy_pets/__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(inside))
    file = replace(CATS_FILE, package_path="noisy_pets/data/cats.csv")
    return replace(PETS, files=(file,), pip_package="noisy_pets==1.0", count_checks=())


def test_file_in_a_package_is_found_without_import(package, tmp_path):
    assert require_file("pets/cats.csv", [package], tmp_path / "data") == tmp_path / "site/noisy_pets/data/cats.csv"
    assert "noisy_pets" not in sys.modules
    write_files(tmp_path / "data", pets__cats_csv=CATS)
    assert (
        require_file("pets/cats.csv", [package], tmp_path / "data") == tmp_path / "data/pets/cats.csv"
    )  # the data folder comes first


def test_missing_package_is_suggested(package, tmp_path, monkeypatch):
    absent = replace(package, files=(replace(CATS_FILE, package_path="no_such_pets/data/cats.csv"),))
    message = error_message(require_file, "pets/cats.csv", [absent], tmp_path / "data")
    assert "Get it with `pip install noisy_pets==1.0`, or `crossmatch data get pets`" in message


def test_module_without_a_spec_is_not_a_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "handmade", type(sys)("handmade"))
    sys.modules["handmade"].__spec__ = None
    assert find_file(replace(CATS_FILE, package_path="handmade/a.csv"), tmp_path) is None


# Verifying


def states(root, data_set=PETS):
    files, counts = verify_data_set(data_set, [data_set], root)
    return (
        [file_state.state for file_state in files],
        [count.count for count in counts],
        [check.is_bad for check in (*files, *counts)],
    )


COMPLETE = {"pets__cats_csv": CATS, "pets__dogs_csv": DOGS}
WRONG_COUNT = replace(PETS, count_checks=(replace(PETS.count_checks[0], expected=9),))
OTHER_ORDER = replace(PETS, files=(replace(CATS_FILE, sha256=sha(CATS[::-1]), other_hashes=(sha(CATS),)),), count_checks=())


@pytest.mark.parametrize(
    ("files", "data_set", "expected"),
    [
        (COMPLETE, PETS, (["ok", "ok", "missing"], [2, 3, None], [False] * 6)),
        ({"pets__dogs_csv": DOGS[:3]}, PETS, (["missing", "wrong", "missing"], [None] * 3, [True, True] + [False] * 4)),
        (COMPLETE, WRONG_COUNT, (["ok", "ok", "missing"], [2], [False, False, False, True])),
        (COMPLETE | {"pets__notes_txt": b"1"}, PETS, (["ok", "ok", "unknown"], [2, 3, 1], [False] * 6)),
        (COMPLETE | {"pets__notes_txt": b"no number"}, PETS, (["ok", "ok", "unknown"], [2, 3, None], [False] * 5 + [True])),
        (COMPLETE, OTHER_ORDER, (["ok"], [], [False])),
    ],
    ids=["complete", "missing and short files", "wrong count", "no known hash", "unreadable without hash", "alternative hash"],
)
def test_verify_reports_states_and_counts(tmp_path, files, data_set, expected):
    write_files(tmp_path, **files)
    assert states(tmp_path, data_set) == expected


def test_changed_byte_is_detected_by_verify_only(tmp_path):
    write_files(tmp_path, pets__cats_csv=CATS.replace(b"5", b"4"), pets__dogs_csv=DOGS)
    assert [file_state.state for file_state in check_sizes(PETS, tmp_path)] == ["ok", "ok", "missing"]
    assert states(tmp_path) == (["wrong", "ok", "missing"], [None, None, None], [True] + [False] * 5)
    problem = verify_data_set(PETS, [PETS], tmp_path)[0][0].problem
    assert problem == f"sha256 {sha(CATS.replace(b'5', b'4'))}, expected {sha(CATS)}"
    write_files(tmp_path, pets__dogs_csv=DOGS[:3])
    assert [file_state.state for file_state in check_sizes(PETS, tmp_path)] == ["ok", "wrong", "missing"]


def test_count_with_an_incomplete_file_of_another_data_set_is_skipped(tmp_path):
    write_files(tmp_path, pets__cats_csv=CATS[:4])
    zoo = DataSet("zoo", "", "", "", (), count_checks=(PETS.count_checks[0],))
    assert [count.count for count in verify_data_set(zoo, [zoo, PETS], tmp_path)[1]] == [None]


def test_licence_notice_marks_non_commercial_data(capsys):
    assert licence_notice(PETS) == "pets: CC BY 4.0 · https://pets.example"
    assert "NON-COMMERCIAL USE ONLY" in licence_notice(replace(PETS, non_commercial=True))


def test_invalid_json_is_an_error(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"a": [1, 2')
    assert error_message(read_json, tmp_path / "a.json").startswith(f"{tmp_path}/a.json is not a JSON file (")
    (tmp_path / "a.json").write_bytes(b'{"a": "\xff"}')
    error_message(read_json, tmp_path / "a.json")
    (tmp_path / "a.json").write_text('{"a": [{"b": 1, "c": 2}], "d": 3}')
    assert read_json(tmp_path / "a.json", ["a", "c"]) == {"a": [{"c": 2}]}


# Installing from a local folder


def install(data_set, root, *, data_sets=None, lines=None, **options):
    lines = [] if lines is None else lines
    dataset_install.install_data_set(data_set, data_sets or [data_set], root, report=lines.append, retry=QUICK, **options)
    return lines


@pytest.mark.parametrize("layout", ["pets__{}_csv", "{}_csv", "some__deep__place__{}_csv"])
def test_local_files_are_copied_from_any_layout(tmp_path, layout):
    local = write_files(tmp_path / "hand", **{layout.format("cats"): CATS, layout.format("dogs"): DOGS})
    lines = install(PETS, tmp_path / "data", source=local)
    assert read_tree(tmp_path / "data") == {"pets/cats.csv": CATS, "pets/dogs.csv": DOGS}
    assert lines[0] == "pets: CC BY 4.0 · https://pets.example"
    assert lines[1].startswith("pets/cats.csv: copied from ")
    assert install(PETS, tmp_path / "data", source=local)[1:] == ["pets/cats.csv: present", "pets/dogs.csv: present"]


def test_local_files_can_be_linked(tmp_path):
    local = write_files(tmp_path / "hand", cats_csv=CATS, dogs_csv=DOGS)
    install(PETS, tmp_path / "data", source=local, link=True)
    assert os.readlink(tmp_path / "data/pets/cats.csv") == str(local / "cats.csv")
    assert read_tree(tmp_path / "data") == {"pets/cats.csv": CATS, "pets/dogs.csv": DOGS}
    (local / "cats.csv").unlink()
    assert "is not in the data folder" in error_message(require_file, "pets/cats.csv", [PETS], tmp_path / "data")
    write_files(local, cats_csv=CATS)
    install(PETS, tmp_path / "data", source=local)
    (tmp_path / "data/pets/cats.csv").unlink()
    write_files(tmp_path / "data", pets__cats_csv=b"wrong")
    install(PETS, tmp_path / "data", source=local, link=True)  # a link takes the place of a wrong file
    assert read_tree(tmp_path / "data")["pets/cats.csv"] == CATS


def test_wrong_local_files_are_reported_and_the_others_installed(tmp_path):
    local = write_files(tmp_path / "hand", cats_csv=CATS[::-1], deep__dogs_csv=DOGS)
    message = error_message(install, PETS, tmp_path / "data", source=local)
    assert message.startswith(
        f"pets lacks 1 of 2 files: pets/cats.csv: {local}/cats.csv has sha256 {sha(CATS[::-1])}, expected {sha(CATS)}"
    )
    assert "`crossmatch data get pets`" in message
    assert read_tree(tmp_path / "data") == {"pets/dogs.csv": DOGS}
    (local / "cats.csv").unlink()
    assert f"pets/cats.csv: {local} contains no cats.csv" in error_message(install, PETS, tmp_path / "data", source=local)


def test_wrong_local_file_does_not_hide_the_right_one(tmp_path):
    local = write_files(tmp_path / "hand", cats_csv=CATS[::-1], z__cats_csv=CATS, dogs_csv=DOGS)
    install(PETS, tmp_path / "data", source=local)
    assert read_tree(tmp_path / "data") == {"pets/cats.csv": CATS, "pets/dogs.csv": DOGS}


def test_wrong_file_is_replaced_only_by_a_right_one(tmp_path):
    data = write_files(tmp_path / "data", pets__cats_csv=b"wrong", pets__dogs_csv=DOGS)
    error_message(install, PETS, data, source=write_files(tmp_path / "empty", other_csv=b"1"))
    assert read_tree(data)["pets/cats.csv"] == b"wrong"
    install(PETS, data, source=write_files(tmp_path / "hand", cats_csv=CATS))
    assert read_tree(data) == {"pets/cats.csv": CATS, "pets/dogs.csv": DOGS}


def test_optional_files_are_installed_on_request(tmp_path):
    local = write_files(tmp_path / "hand", cats_csv=CATS, dogs_csv=DOGS, notes_txt=NOTES)
    install(PETS, tmp_path / "data", source=local)
    assert "pets/notes.txt" not in read_tree(tmp_path / "data")
    install(PETS, tmp_path / "data", source=local, optional=True)
    assert read_tree(tmp_path / "data")["pets/notes.txt"] == NOTES


def test_file_in_a_package_is_not_installed(package, tmp_path):
    assert install(package, tmp_path / "data")[1:] == ["pets/cats.csv: in the installed package"]
    assert not (tmp_path / "data").exists()


def test_local_source_prevents_downloads(server, tmp_path):
    server.content = CATS
    remote = replace(PETS, files=(replace(CATS_FILE, source_url=f"{server.url}/cats.csv"),), count_checks=())
    error_message(install, remote, tmp_path / "data", source=write_files(tmp_path / "hand", other_csv=b"1"))
    assert server.paths == []
    install(remote, tmp_path / "data")
    assert server.paths == ["/cats.csv"]


def test_failed_download_suggests_remedies(server, behave, tmp_path):
    server.script = [behave.status(404)]
    remote = replace(PETS, files=(replace(CATS_FILE, source_url=f"{server.url}/cats.csv"),), pip_package="pets==1", count_checks=())
    assert error_message(install, remote, tmp_path / "data") == (
        f"pets is not complete: pets/cats.csv: {server.url}/cats.csv answered 404 Not Found. "
        "Try again (downloads continue where they stopped), "
        "use local files with `crossmatch data get pets --from DIR`, `pip install pets==1`, or see https://pets.example."
    )
    assert "it has no download address" in error_message(install, PETS, tmp_path / "data")
    assert read_tree(tmp_path) == {}


def test_copy_waits_for_another_process(tmp_path):
    local, lines = write_files(tmp_path / "hand", cats_csv=CATS), []
    cats_only = replace(PETS, files=(CATS_FILE,), count_checks=())
    with locked_part_file(tmp_path / "data/pets/cats.csv", print):
        thread = threading.Thread(target=lambda: install(cats_only, tmp_path / "data", source=local, lines=lines))
        thread.start()
        wait_until(lambda: "waiting for another crossmatch process that downloads cats.csv" in lines)
    thread.join()
    assert read_tree(tmp_path / "data") == {"pets/cats.csv": CATS}


# Archives and recipes


def archive(**members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for name, content in members.items():
            zip_file.writestr(f"inside/{name}.txt", content)
    return packed.getvalue()


def loud_data_set(server, rules=(make_upper_case,)):
    """LOUD.txt is built from quiet.txt, a source in an archive; notes.txt in the same archive is optional."""
    url = f"{server.url}/all.zip"
    return DataSet(
        "loud", "made by hand", "MIT", "smith",
        (
            declare("loud/LOUD.txt", b"A WORD\n", recipe=FileRecipe(("loud/quiet.txt",), rules)),
            DataFile("loud/quiet.txt", None, None, url, zip_member="inside/quiet.txt", use="source"),
            DataFile("loud/notes.txt", None, None, url, zip_member="inside/notes.txt", use="optional"),
        ),
    )  # fmt: skip


def test_recipe_uses_a_downloaded_archive_and_removes_it(server, behave, tmp_path):
    server.content = archive(quiet=b"a word\n", notes=NOTES)
    server.script = [behave.breaks_after(40), behave.honest]
    install(loud_data_set(server), tmp_path)
    assert read_tree(tmp_path) == {"loud/LOUD.txt": b"A WORD\n"}
    assert server.ranges == [None, "bytes=40-"]
    server.ranges.clear()
    install(loud_data_set(server), tmp_path, optional=True)
    assert read_tree(tmp_path) == {"loud/LOUD.txt": b"A WORD\n", "loud/notes.txt": NOTES}
    assert server.ranges == [None]


def test_archive_is_downloaded_once(server, tmp_path):
    server.content = archive(quiet=b"a word\n", notes=NOTES)
    install(loud_data_set(server), tmp_path, optional=True)
    assert set(read_tree(tmp_path)) == {"loud/LOUD.txt", "loud/notes.txt"}
    assert server.ranges == [None]


@pytest.mark.parametrize("name", ["all.zip", "quiet.txt"])
def test_local_archives_and_sources_are_used_in_place(server, tmp_path, name):
    local = write_files(tmp_path / "hand", other_csv=b"")
    (local / name).write_bytes(archive(quiet=b"a word\n") if name == "all.zip" else b"a word\n")
    install(loud_data_set(server), tmp_path / "data", source=local)
    assert read_tree(tmp_path / "data") == {"loud/LOUD.txt": b"A WORD\n"}
    assert (local / name).exists()
    assert server.ranges == []


def test_existing_archive_is_not_removed(server, tmp_path):
    write_files(tmp_path, loud__x_csv=b"")
    (tmp_path / "loud/all.zip").write_bytes(archive(quiet=b"a word\n"))
    install(loud_data_set(server), tmp_path)
    assert set(read_tree(tmp_path)) == {"loud/LOUD.txt", "loud/all.zip", "loud/x.csv"}


def corrupt(content):
    at = content.index(b"quiet.txt") + 14
    return content[:at] + bytes(255 - byte for byte in content[at : at + 4]) + content[at + 4 :]


@pytest.mark.parametrize("content", [b"no archive", archive(zoo=b"1"), corrupt(archive(quiet=b"a word\n" * 99))])
def test_bad_archive_is_an_error_and_removed(server, tmp_path, content):
    server.content = content
    message = error_message(install, loud_data_set(server), tmp_path)
    assert "loud/LOUD.txt: it is made from loud/quiet.txt: " in message
    assert "all.zip has no readable inside/quiet.txt" in message
    assert read_tree(tmp_path) == {}


def test_result_of_a_recipe_must_have_the_declared_hash(server, tmp_path):
    server.content = archive(quiet=b"another word\n")
    message = error_message(install, loud_data_set(server), tmp_path)
    assert f"sha256 {sha(b'ANOTHER WORD' + bytes([10]))}, expected {sha(b'A WORD' + bytes([10]))}" in message
    assert "these are not the official files" in message
    assert read_tree(tmp_path) == {}


def test_first_rule_with_the_declared_hash_is_used(server, tmp_path):
    server.content = archive(quiet=b"a word\n")
    install(loud_data_set(server, (make_wrong_text, make_upper_case)), tmp_path)
    assert read_tree(tmp_path) == {"loud/LOUD.txt": b"A WORD\n"}


def test_source_of_another_data_set_shows_its_licence(server, tmp_path):
    server.content = b"a word\n"
    quiet = DataSet("quiet", "", "CC BY-NC 4.0", "", (DataFile("q/quiet.txt", None, None, f"{server.url}/q"),), non_commercial=True)
    loud = DataSet(
        "loud", "", "MIT", "", (declare("loud/LOUD.txt", b"A WORD\n", recipe=FileRecipe(("q/quiet.txt",), (make_upper_case,))),)
    )
    lines = install(loud, tmp_path, data_sets=[loud, quiet])
    assert lines[:2] == ["loud: MIT", "quiet: NON-COMMERCIAL USE ONLY, CC BY-NC 4.0"]
    assert set(read_tree(tmp_path)) == {"loud/LOUD.txt", "q/quiet.txt"}
    (tmp_path / "loud/LOUD.txt").unlink()
    assert install(loud, tmp_path, data_sets=[loud, quiet])[:2] == ["loud: MIT", "q/quiet.txt: present"]
    (tmp_path / "loud/LOUD.txt").unlink()
    assert "made from q/quiet.txt, which no data set declares" in error_message(install, loud, tmp_path)


def test_archive_member_with_another_hash_is_an_error(server, tmp_path):
    server.content = archive(notes=NOTES)
    url = f"{server.url}/all.zip"
    data_set = DataSet(
        "one", "", "", "", (declare("one/notes.txt", b"other notes", source_url=url, zip_member="inside/notes.txt"),)
    )
    assert f"one/notes.txt: the content has sha256 {sha(NOTES)}, expected {sha(b'other notes')}" in error_message(
        install, data_set, tmp_path
    )
    assert read_tree(tmp_path) == {}
