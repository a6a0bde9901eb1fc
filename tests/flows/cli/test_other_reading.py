"""A table of numbers and texts: one of the two is read, and the line for the other is said."""

import pandas as pd
import pytest

from bigfs.storage.runs.runs import Run

WORDS = ("--label", "y", "--features", 2, "--method", "anova", "--test-size", 0.5, "--workers", 0)


@pytest.mark.parametrize(
    ("column", "said", "option"),
    [
        ("remark", "the texts in 'remark' are not read: for them", "text=remark"),
        ("text", "the numbers in 'a' are not read: for a table", "columns=auto"),
    ],
)
def test_the_line_for_the_other_part_is_said_and_works(bigfs, tmp_path, column, said, option):
    n = 60
    texts = [f"the {'red' if i % 2 else 'blue'} parcel number {i} came" for i in range(n)]
    frame = {"a": [0.1 * i for i in range(n)], "b": [i % 7 for i in range(n)], column: texts}
    pd.DataFrame(frame | {"y": ["no", "yes"] * (n // 2)}).to_csv(tmp_path / "t.csv", index=False)
    status, _, err = bigfs("run", "t.csv", *WORDS)
    assert status == 0, err
    [line] = [line for line in err.splitlines() if line.startswith("other: ")]
    words = " ".join(map(str, WORDS))
    assert line == f"other: {said} bigfs run 't.csv?{option}' {words}"
    status, _, err = bigfs("run", f"t.csv?{option}", *WORDS, "--out", "other")
    assert status == 0, err
    names = [row["name"] for row in Run.open("other").read_table("selected.csv")]
    assert set(names) <= ({"red", "blue"} if column == "remark" else {"a", "b"}) | {
        "came",
        "number",
        "parcel",
        "the",
    }
    assert "other: " not in err
