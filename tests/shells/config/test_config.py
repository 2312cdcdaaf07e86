"""Settings: which source wins, and the message of each mistake."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from afterwit.config import known_names, load, section_of_home
from afterwit.errors import SettingError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text("[judge]\nvotes = 5\n\n[learner]\nlr = 1e-4\nbatch = 8\n")
    return tmp_path


def test_flags_beat_the_environment_which_beats_the_file(home: Path) -> None:
    environment = {"AFTERWIT_LEARNER__LR": "2e-4", "AFTERWIT_LEARNER__BATCH": "6", "OTHER": "x"}
    settings = load(home=home, pairs=["learner.batch=5"], environment=environment)
    assert (settings.judge.votes, settings.learner.lr, settings.learner.batch) == (5, 2e-4, 5)


def test_a_recipe_lies_below_the_file(home: Path) -> None:
    settings = load(home=home, below={"judge": {"votes": 1, "temperature": 0.2}}, environment={})
    assert (settings.judge.votes, settings.judge.temperature) == (5, 0.2)


def test_settings_reach_another_process_with_the_sections_of_packages(home: Path) -> None:
    settings = load(home=home, environment={})
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_an_unknown_key_names_the_nearest_and_its_line(home: Path) -> None:
    (home / "config.toml").write_text(
        "[judge]\nvotes = 5\n\n[learner]\nlearning_rat = 1\n[judges]\nvotes = 1\n"
    )
    with pytest.raises(SettingError, match=r"learner.learning_rat in .*config.toml, line 5"):
        load(home=home, environment={})


@pytest.mark.parametrize("line", ["learner = 1", 'engine = "vllm"', "practice = []"])
def test_a_section_that_is_written_as_a_setting_is_told_so(home: Path, line: str) -> None:
    (home / "config.toml").write_text(line)
    name = line.split()[0]
    with pytest.raises(SettingError, match=rf"toml, line 1: it is a section: write \[{name}\], and below it"):
        load(home=home, environment={})


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("judge.vote=3", "did you mean judge.votes"),
        ("engine.url=http://x:1", "is a setting of other engines: set engine.kind to vllm or sglang"),
        ("judg.votes=3", "did you mean judge"),
        ("gateway.port=1", "did you mean serve.port?"),
        ("gateway.temperature=1", "did you mean gateway.force_temperature?"),
        ("store.days=1", "did you mean store.keep_days?"),
        ("learner.w_rl=1", "did you mean objective.w_rl?"),
        ("learner.target_kl=0.1", "learner.target_kl on the command line; known here: learner.enabled, "),
        ("judge.votes=many", "judge.votes = 'many' on the command line"),
        ("objective.subset=studnet", "objective.subset = 'studnet' on the command line"),
        ("learner.batch=0", "learner.batch = '0' on the command line: batch is 0, but must be at least 1"),
        ("objective.objective=hybird", "did you mean hybrid?"),
        ("learner.enabled=yess", "should be a valid boolean, true or false"),
        ("judge.votes", "write it as section.name=value"),
        ("JUDGE.VOTES=5", "did you mean judge?"),
        ("judge.VOTES=5", "did you mean judge.votes?"),
        ("judge_votes=5", "did you mean judge.votes?"),
        ("judge:votes=5", "did you mean judge.votes?"),
        ("redaction.kinds=emails", 'a list, for example ["one", "two"]'),
        ("redaction.patterns=" + "[" * 100_000, "a list is written as JSON"),
        ("judge.votes=" + "9" * 100_000, "judge.votes = '999"),
        ("judge." + "a" * 100_000 + "=1", "unknown setting judge.aaa"),
    ],
)
def test_a_wrong_flag_is_one_line_that_helps(home: Path, flag: str, said: str) -> None:
    with pytest.raises(SettingError) as caught:
        load(home=home, pairs=[flag], environment={})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1500


def test_a_variable_with_one_underscore_in_place_of_two_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"two underscores .*; did you mean judge.votes\?"):
        load(home=tmp_path, environment={"AFTERWIT_JUDGE_VOTES": "3"})


def test_an_unknown_environment_variable_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="AFTERWIT_JUDGE__VOTE"):
        load(home=tmp_path, environment={"AFTERWIT_JUDGE__VOTE": "3"})


@pytest.mark.parametrize("name", ["AFTERWIT_CONFIG", "AFTERWIT_KEY"])
def test_a_variable_that_nothing_reads_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingError, match=rf"unknown setting .*\({name};"):
        load(home=tmp_path, environment={name: "x"})


def test_broken_toml_is_told_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[judge\n")
    with pytest.raises(SettingError, match=r"config.toml is not valid TOML"):
        load(home=tmp_path, environment={})


@pytest.mark.parametrize("text", ["a = " + "[" * 20_000, "[judge]\nvotes = " + "9" * 5_000])
def test_toml_beyond_all_bounds_is_told_with_its_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(SettingError, match=r"config.toml is not valid TOML"):
        load(home=tmp_path, environment={})


@pytest.mark.parametrize(("name", "why"), [("file", "Not a directory"), ("a" * 300, "File name too long")])
def test_a_home_that_cannot_be_read_is_named(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingError, match=f"config.toml cannot be read: {why}"):
        load(home=tmp_path / name)
    with pytest.raises(SettingError, match=f"config.toml cannot be read: {why}"):
        section_of_home(tmp_path / name, "store")


def test_a_folder_is_no_configuration_file(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read: Is a directory"):
        load(home=tmp_path, file=tmp_path, environment={})


def test_every_section_is_refused_what_it_does_not_know(tmp_path: Path) -> None:
    sections = {name.partition(".")[0] for name in known_names() if "." in name}
    for section in sections:
        with pytest.raises(SettingError, match=f"unknown setting {section}.nonsense"):
            load(home=tmp_path, pairs=[f"{section}.nonsense=1"], environment={})


@pytest.mark.parametrize(
    "name",
    [
        "store.keep_gb",
        "store.keep_days",
        "store.next_state_hours",
        "engine.prefix_cache_gib",
        "learner.max_wait_s",
        "learner.adam_eps",
    ],
)
def test_what_is_counted_in_whole_units_has_an_end(home: Path, name: str) -> None:
    with pytest.raises(SettingError, match=f"{name.partition('.')[2]} is inf, but must be below inf"):
        load(home=home, pairs=[f"{name}=inf"], environment={})


def test_a_rate_that_ruins_any_model_is_refused_and_other_programs_names_are_known(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"lr is 5.0, but must be at most 0.1"):
        load(home=tmp_path, pairs=["learner.lr=5"])
    with pytest.raises(SettingError, match=r"did you mean learner.lr\?"):
        load(home=tmp_path, pairs=["learner.learning_rate=1"])
