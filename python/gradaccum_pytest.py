"""The pytest option of ``pytest --pyargs gradaccum.exercises --submissions FOLDER``. Loaded by every pytest, so it imports nothing."""


def pytest_addoption(parser):
    parser.addoption("--submissions", metavar="FOLDER", help="gradaccum: grade the exercises of a class, one sub-folder, notebook or .py file a student")


def pytest_configure(config):
    if config.getoption("submissions"):
        config.option.tbstyle, config.option.reportchars = "no", ""      # our own summary says it once


def pytest_terminal_summary(terminalreporter, config):
    if not config.getoption("submissions"):
        return
    reports = [r for key in ("passed", "failed") for r in terminalreporter.stats.get(key, []) if r.when == "call"]
    rows = sorted(dict(r.user_properties)["row"] for r in reports if "row" in dict(r.user_properties))
    terminalreporter.section("submissions")
    for student, exercise, state, reason in rows:
        terminalreporter.write_line(f"{student:<20} {exercise:<20} {state:<13} {reason}".rstrip())
