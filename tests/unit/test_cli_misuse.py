"""What is typed wrong on the command line: one line, exit code 2, no traceback."""

import pytest

from esrally_ebs.cli import main


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["sessions", "--nonsense"], "No such option: --nonsense"),
        (["report"], "Missing argument"),
        (["volumes", "set", "gp2", "--credits", "2"], "--credits"),
        (["volumes", "set", "gp2", "--time-scale", "much"], "--time-scale"),
        (["volumes", "set", "gp2", "--drain", "--refill"], "one of --drain and --refill"),
    ],
)
def test_words_that_mean_nothing_are_one_line_and_exit_code_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("esrally-ebs: ")
    assert says in error
    assert error.count("\n") == 1
