"""Settings: where they come from, what stops the start, and what is never shown (SPEC 11)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cohortd.cohorts.profile import ROUTE_DEFAULTS
from cohortd.errors import SettingsError
from cohortd.masking import masked_url
from cohortd.settings import Settings, documented, load


def read(toml: str = "", environ: dict[str, str] | None = None, *, tmp_path: Path, **flags: Any) -> Settings:
    """The settings of a file, an environment and flags."""
    file = tmp_path / "cohortd.toml"
    file.write_text(toml, "utf-8")
    return load(flags, environ or {}, file)


# -- precedence


@pytest.mark.parametrize(
    ("toml", "environ", "flags", "port"),
    [
        ("", {}, {}, 8400),
        ("port = 1", {}, {}, 1),
        ("port = 1", {"COHORTD_PORT": "2"}, {}, 2),
        ("port = 1", {"COHORTD_PORT": "2"}, {"port": 3}, 3),
        ("port = 1", {"COHORTD_PORT": "2"}, {"port": None}, 2),
        ("", {}, {"port": 3}, 3),
    ],
)
def test_flag_beats_environment_beats_file_beats_default(
    toml: str, environ: dict[str, str], flags: dict[str, Any], port: int, tmp_path: Path
) -> None:
    assert read(toml, environ, tmp_path=tmp_path, **flags).service.port == port


JUDGED = """
[judges.genrm]
urls = ["http://a/v1"]
model = "of the judge"
temperature = 0.1
[profiles.default]
judge = "genrm"
judge_model = "of the profile"
[profiles.strict]
extends = "default"
num_rollouts_per_prompt = 4
[profiles.warm]
judge_temperature = 0.9
[profiles.warmer]
extends = "warm"
"""


def test_what_the_environment_says_of_the_judge_beats_the_files_default_profile(tmp_path: Path) -> None:
    from_file = read(JUDGED, tmp_path=tmp_path)
    assert from_file.profiles["default"].judge_model == "of the profile"
    assert from_file.profiles["strict"].judge_model == "of the profile"
    assert from_file.judges["genrm"].model == "of the judge"
    environ = {"COHORTD_JUDGE_MODEL": "of the environment", "COHORTD_JUDGE_TEMPERATURE": "0.5"}
    found = read(JUDGED, environ, tmp_path=tmp_path)
    for name in ("default", "strict"):
        assert found.profiles[name].judge_model == "of the environment"
        assert found.profiles[name].judge_temperature == 0.5
    assert found.judges["genrm"].model == "of the environment"
    flagged = read(JUDGED, environ, tmp_path=tmp_path, judge_model="of the flag")
    assert flagged.profiles["default"].judge_model == "of the flag"


def test_an_extended_profile_hands_down_everything_that_is_not_set_anew(tmp_path: Path) -> None:
    profiles = read(JUDGED, tmp_path=tmp_path).profiles
    assert profiles["default"].judge_temperature == 0.1  # the judge's own
    assert profiles["warm"].judge_temperature == profiles["warmer"].judge_temperature == 0.9
    assert profiles["warmer"].judge == "genrm"


def test_a_profile_of_another_judge_takes_that_judges_model(tmp_path: Path) -> None:
    toml = JUDGED + '[judges.small]\nurls = ["http://b/v1"]\nmodel = "small"\n[profiles.cheap]\njudge = "small"\n'
    cheap = read(toml, {"COHORTD_JUDGE_MODEL": "large"}, tmp_path=tmp_path).profiles["cheap"]
    assert (cheap.judge, cheap.judge_model, cheap.judge_temperature) == ("small", "small", 0.6)


def test_a_campaign_gets_its_profile_and_others_the_default_one(tmp_path: Path) -> None:
    found = read(JUDGED + '[campaigns.math-v3]\nprofile = "strict"\n', tmp_path=tmp_path)
    assert found.size("math-v3") == 4
    assert found.size("another") is None
    assert found.profile_name("math-v3") == "strict"


def test_lists_are_separated_by_commas_and_aliases_are_taken(tmp_path: Path) -> None:
    environ = {
        "COHORTD_JUDGE_URLS": " http://a/v1 ,http://b/v1,",
        "COHORTD_ALLOWED_HOSTS": "Gym.Internal,*",
        "COHORTD_GENRM_PARSE_RETRIES": "7",
        "COHORTD_JUDGE_NAME": "j",
    }
    found = read(environ=environ, tmp_path=tmp_path)
    assert found.judges["j"].urls == ("http://a/v1", "http://b/v1")
    assert found.service.allowed_hosts == ("gym.internal", "*")  # host names have no case
    assert found.profiles["default"].judge_answer_retries == 7
    assert (
        read("[profiles.default]\ngenrm_parse_retries = 5", tmp_path=tmp_path).profiles["default"].judge_answer_retries
        == 5
    )
    over = read("[profiles.default]\ngenrm_parse_retries = 5", {"COHORTD_JUDGE_ANSWER_RETRIES": "6"}, tmp_path=tmp_path)
    assert over.profiles["default"].judge_answer_retries == 6


@pytest.mark.parametrize(("word", "value"), [("true", True), ("1", True), ("YES", True), ("off", False), ("0", False)])
def test_yes_and_no_may_be_said_in_several_ways(word: str, value: bool, tmp_path: Path) -> None:
    assert read(environ={"COHORTD_BOTH_ORDERS": word}, tmp_path=tmp_path).profiles["default"].both_orders is value


# -- defaults


SETTINGS = Path(__file__).parents[2] / "docs" / "settings.md"
NOT_SETTINGS_OF_OTHERS = {"COHORTD_TEST_ANYTHING": "1", "COHORTD_FAILPOINTS": "", "HOME": "x"}


def _effective(settings: Settings, name: str) -> Any:
    """The value in force of the setting that the environment names so."""
    field = name.removeprefix("COHORTD_").lower()
    profile = settings.profiles["default"].resolved("gym")
    if field == "num_rollouts_per_prompt":
        return settings.sizes["default"]
    if field == "judge_name":
        return profile.judge
    judge = settings.judges[profile.judge]
    if field.startswith("judge_") and hasattr(judge, field.removeprefix("judge_")):
        own = getattr(judge, field.removeprefix("judge_"))
        assert getattr(profile, field, own) == own
        return own
    return getattr(settings.service, field) if hasattr(settings.service, field) else getattr(profile, field)


def test_the_default_that_is_documented_is_the_one_in_force(tmp_path: Path) -> None:
    settings = read(environ=NOT_SETTINGS_OF_OTHERS, tmp_path=tmp_path)
    cells = [re.split(r"(?<!\\) *\| *", line) for line in SETTINGS.read_text("utf-8").splitlines()]
    rows = {row[1].strip("`"): row[3] for row in cells if len(row) > 3 and "COHORTD_" in row[1]}
    names = [name for name, _ in documented()]
    assert set(rows) == {*names, "COHORTD_NUM_ROLLOUTS_PER_PROMPT"}
    for name, shown in rows.items():
        value = _effective(settings, name)
        field = name.removeprefix("COHORTD_").lower()
        if field in ROUTE_DEFAULTS:
            assert f"`{value}` (gym routes)" in shown, name
        elif value in (None, "", ()):
            assert shown in ("not set", "empty"), (name, shown)
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            assert shown == f"`{text}`", name


def test_every_setting_is_shown_and_can_be_set_by_its_documented_name(tmp_path: Path) -> None:
    shown = msgspec.json.encode(read(tmp_path=tmp_path).shown()).decode()
    for name, field in documented():
        default = field.default
        text = str(default).lower() if isinstance(default, bool) else str(default)
        if default is None or default in ("", ()):
            text = {"COHORTD_MAX_ANSWER_CHARS": "null"}.get(name, "")
        if text:
            read(environ={name: text}, tmp_path=tmp_path)
        assert field.name in shown


# -- what stops the start


UNKNOWN = [
    ("", {"COHORTD_PORTT": "1"}, "COHORTD_PORTT", "COHORTD_PORT?"),
    ("", {"COHORTD_JUDGE": "x"}, "COHORTD_JUDGE is", ""),
    ("", {"COHORTD_": "x"}, "COHORTD_", ""),
    ("", {"COHORTD_EXTENDS": "x"}, "COHORTD_EXTENDS", ""),
    ("portt = 1", {}, "portt", "port?"),
    ("num_rollouts_per_prompt = 8", {}, "num_rollouts_per_prompt", "[profiles.default]"),
    ("genrm_parse_retries = 8", {}, "genrm_parse_retries", "[profiles.default]"),
    ("[servic]\nport = 1", {}, "servic", ""),
    ("[profiles.a]\nminmembers = 2", {}, "profiles.a.minmembers", "min_members?"),
    ('[profiles.a]\nurls = ["http://a"]', {}, "profiles.a.urls", ""),
    ('[judges.a]\nurl = "http://a"', {}, "judges.a.url", "urls?"),
    ('[judges.a]\nkey = "CANARY"', {}, "judges.a.key", "api_key?"),
    ('[campaigns.x]\nprofil = "default"', {}, "campaigns.x", "profile"),
    ('[campaigns.x]\nprofile = "default"\nsize = 4', {}, "campaigns.x", ""),
    ('[campaigns.x]\nprofile = "strikt"', {}, "campaigns.x", "[profiles.strikt]"),
    ('[profiles.a]\nextends = "strikt"', {}, "strikt", "[profiles.strikt]"),
    ('[profiles.a]\njudge = "genmr"', {}, "profiles.a.judge", "[judges.genmr]"),
    ('[profiles.default]\njudge = "genmr"\n[judges.genrm]\nurls = ["http://a/v1"]', {}, "genmr", "[judges.genmr]"),
    ('[judges.genrm]\nurls = ["http://a/v1"]', {"COHORTD_JUDGE_NAME": "genmr"}, "genmr", "[judges.genmr]"),
]


@pytest.mark.parametrize(("toml", "environ", "name", "fix"), UNKNOWN)
def test_what_is_unknown_stops_the_start_with_its_name_and_the_fix(
    toml: str, environ: dict[str, str], name: str, fix: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError) as refused:
        read(toml, environ, tmp_path=tmp_path)
    assert name in str(refused.value)
    assert fix in str(refused.value)
    assert "CANARY" not in str(refused.value)


def test_an_unknown_flag_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="COHORTD_COLOUR"):
        read(tmp_path=tmp_path, colour="red")


CONTRADICTIONS = [
    ("[profiles.default]\ngenrm_parse_retries = 1\njudge_answer_retries = 2", "judge_answer_retries"),
    ("max_body_bytes = 2000\nmax_reading_bytes = 1000", "max_reading_bytes"),
    (
        '[profiles.a]\non_incomplete = "judge_present"\nmin_members = 9\nnum_rollouts_per_prompt = 8',
        "profiles.a.min_members",
    ),
    ("[profiles.a]\nnum_rollouts_per_prompt = 257", "max_rollouts_per_prompt"),
    ('[profiles.a]\nextends = "b"\n[profiles.b]\nextends = "a"', "profiles.a extends itself"),
    ('[campaigns."a b"]\nprofile = "default"', "campaigns.a b"),
    ('allowed_hosts = ["gym.internal:8400"]', "allowed_hosts"),
    ('allowed_hosts = ["http://gym.internal"]', "allowed_hosts"),
    ('[judges.a]\nurls = ["http://a/v1?x=1"]', "judges.a.urls"),
    ('[judges.a]\napi_key = "line\\n"', "judges.a.api_key"),
    (f'[judges.{"x" * 129}]\nurls = []\n[profiles.default]\njudge = "{"x" * 129}"', "profiles.default.judge"),
]


@pytest.mark.parametrize(("toml", "name"), CONTRADICTIONS)
def test_what_contradicts_itself_stops_the_start(toml: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=re.escape(name)):
        read(toml, tmp_path=tmp_path)


@pytest.mark.parametrize(
    "toml",
    [
        "port = true", "port = 8400.0", "port = []", "lease_s = true", "judges = 5", "[profiles]\na = 5",
        "[campaigns.x]\nprofile = []", "[campaigns.x]\nprofile = 5", "[campaigns]\nx = 'default'",
        "[profiles.a]\nextends = []", "[profiles.a]\nextends = {}", "[profiles.a]\njudge = []", "[profiles.default]\njudge = 7",
        "[profiles.a]\nnum_rollouts_per_prompt = 2.5", "[profiles.a]\nnum_rollouts_per_prompt = true",
        "[judges.a]\nurls = [5]", "[judges.a]\napi_key = 5", "shutdown_reply = 503", "[profiles.a]\nmax_answer_chars = true",
        "port =",
    ],
)  # fmt: skip
def test_values_of_the_wrong_type_are_refused_and_never_crash(toml: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        read(toml, tmp_path=tmp_path)


def test_a_choice_is_refused_with_what_there_is_to_choose_from(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="circular, all_pairs, circulant"):
        read(environ={"COHORTD_COMPARISON_STRATEGY": "round_robin"}, tmp_path=tmp_path)
    with pytest.raises(SettingsError, match="default_verdict, fail"):
        read(environ={"COHORTD_ON_UNPARSEABLE": "ignore"}, tmp_path=tmp_path)


# -- ranges

WITHIN: dict[str, tuple[str, ...]] = {  # each at the edge of its range
    "cohort_collection_timeout_s": ("0.001", "1e9"), "cohort_evaluation_timeout_s": ("0.001", "1e9"),
    "judge_request_timeout_s": ("0.001",), "judge_connect_timeout_s": ("0.001",), "legacy_copy_wait_s": ("0.001",),
    "genrm_parse_retry_sleep_s": ("0",), "lease_s": ("0.001",), "database_wait_s": ("0.001",), "drain_s": ("0",),
    "top_percentile": ("0", "1"), "judge_top_p": ("0", "1"), "judge_temperature": ("0",), "default_score": ("1", "5"),
    "default_ranking": ("1", "6"), "reasoning_bonus": ("0",), "answer_bonus": ("0",),
    "group_reasoning_length_penalty_coeff": ("0",), "group_answer_length_penalty_coeff": ("0",),
    "group_style_penalty_coeff": ("0",), "min_members": ("2",), "num_judges_per_comparison": ("1", "100"),
    "circulant_k": ("1",), "judge_answer_retries": ("0",), "judge_transport_retries": ("0",),
    "judge_max_output_tokens": ("1",), "max_answer_chars": ("1",), "judge_concurrency": ("1",), "port": ("0", "65535"),
    "max_body_bytes": ("1",), "max_active_cohorts": ("1",), "max_waiting_requests": ("1",),
    "max_judge_response_bytes": ("1",), "judge_eject_after": ("1",), "max_rollouts_per_prompt": ("2", "4096"),
    "num_rollouts_per_prompt": ("1", "256"),
}  # fmt: skip
BEYOND: dict[str, tuple[str, ...]] = {  # beside what is beyond every range
    "cohort_collection_timeout_s": ("0", "1e10"), "cohort_evaluation_timeout_s": ("0", "1e10"),
    "judge_request_timeout_s": ("0",), "judge_connect_timeout_s": ("0",), "legacy_copy_wait_s": ("0",), "lease_s": ("0",),
    "database_wait_s": ("0",), "top_percentile": ("1.01", "80"), "judge_top_p": ("1.01",), "default_score": ("0.9", "5.1"),
    "default_ranking": ("0.9", "6.1"), "min_members": ("0", "1", "2.5"), "num_judges_per_comparison": ("0", "101"),
    "circulant_k": ("0",), "judge_max_output_tokens": ("0",), "max_answer_chars": ("0",), "judge_concurrency": ("0",),
    "port": ("65536",), "max_body_bytes": ("0",), "max_active_cohorts": ("0",), "max_waiting_requests": ("0",),
    "max_judge_response_bytes": ("0",), "judge_eject_after": ("0",), "max_rollouts_per_prompt": ("0", "1"),
    "max_reading_bytes": ("0",), "num_rollouts_per_prompt": ("0", "257"),
}  # fmt: skip
BEYOND_ALL = ("-1", "nan", "inf", "-inf", "1e999", "99999999999999999999", "", "x", "true")


@pytest.mark.rule("R32", "R50", "R5")
def test_every_number_is_held_to_its_range(tmp_path: Path) -> None:
    numbers = set(WITHIN) | set(BEYOND)
    named = {name.removeprefix("COHORTD_").lower(): field for name, field in documented()}
    assert {name for name, field in named.items() if type(field.default) in (int, float)} <= numbers
    for name in numbers:
        for value in WITHIN.get(name, ()):
            read(environ={f"COHORTD_{name.upper()}": value}, tmp_path=tmp_path)
        for value in (*BEYOND.get(name, ()), *BEYOND_ALL):
            with pytest.raises(SettingsError) as refused:
                read(environ={f"COHORTD_{name.upper()}": value}, tmp_path=tmp_path)
            assert name.removeprefix("judge_") in str(refused.value), (name, value, str(refused.value))


@pytest.mark.rule("R32")
def test_a_judge_that_no_profile_uses_is_held_to_its_ranges_too(tmp_path: Path) -> None:
    for line in ("temperature = nan", "top_p = 2", "max_output_tokens = 0", "concurrency = 0", 'urls = ["ftp://a"]'):
        with pytest.raises(SettingsError, match=r"judges\.idle\."):
            read(f"[judges.idle]\n{line}", tmp_path=tmp_path)


@pytest.mark.rule("R32", "R5")
def test_what_may_be_but_is_likely_a_mistake_is_warned_of(tmp_path: Path) -> None:
    environ = {"COHORTD_JUDGE_REQUEST_TIMEOUT_S": "900", "COHORTD_JUDGE_URLS": "http://a/v1"}
    assert any("judge_request_timeout_s=900" in line for line in read(environ=environ, tmp_path=tmp_path).warnings())
    assert read(environ=environ | {"COHORTD_JUDGE_REQUEST_TIMEOUT_S": "800"}, tmp_path=tmp_path).warnings() == []
    single = read(environ={"COHORTD_NUM_ROLLOUTS_PER_PROMPT": "1"}, tmp_path=tmp_path).warnings()
    assert any("no judge is asked" in line for line in single)
    assert any("has no URLs" in line for line in read(tmp_path=tmp_path).warnings())


# -- files


def test_a_named_file_must_be_there_and_be_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load({}, {}).service.port == 8400
    (tmp_path / "cohortd.toml").write_text("port = 5")
    assert load({}, {}).service.port == 5
    (tmp_path / "other.toml").write_text("port = 6")
    assert load({}, {"COHORTD_CONFIG": "other.toml"}).service.port == 6
    assert load({}, {"COHORTD_CONFIG": "nowhere.toml"}, tmp_path / "other.toml").service.port == 6
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    for name in ("nowhere.toml", "bytes.toml", "."):
        with pytest.raises(SettingsError, match=re.escape(name)):
            load({}, {"COHORTD_CONFIG": name})


# -- secrets


SECRETS = {
    "COHORTD_DATABASE_URL": "postgresql+asyncpg://somebody:CANARY-password@db.internal/cohortd",
    "COHORTD_JUDGE_API_KEY": "CANARY-key",
    "COHORTD_JUDGE_URLS": "https://somebody:CANARY-judge@judge.internal/v1,https://CANARY-token@judge.internal/v1",
}


def test_no_secret_is_shown_anywhere(tmp_path: Path) -> None:
    settings = read(environ=SECRETS, tmp_path=tmp_path)
    shown = msgspec.json.encode(settings.shown()).decode()
    for text in (shown, repr(settings), str(settings), repr(settings.service), repr(settings.judges)):
        assert "CANARY" not in text
    assert "db.internal" in shown
    assert "https://somebody:***@judge.internal/v1" in shown
    assert settings.shown()["judges"]["judge"]["api_key"] == "***"
    assert read(tmp_path=tmp_path).shown()["judges"]["judge"]["api_key"] is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://host/v1", "http://host/v1"),
        ("http://user:pass@host/v1", "http://user:***@host/v1"),
        ("http://user:p@ss:w@host/v1", "http://user:***@host/v1"),
        ("http://token@host/v1", "http://***@host/v1"),
        ("postgresql://u@h/d?sslmode=require&password=p", "postgresql://***@h/d?sslmode=require&password=***"),
        ("sqlite+aiosqlite:///./cohortd.db", "sqlite+aiosqlite:///./cohortd.db"),
        ("postgresql:user:pass@host", "***"),
    ],
)
def test_a_masked_url_says_where_it_leads_and_nothing_more(url: str, shown: str) -> None:
    assert masked_url(url) == shown
