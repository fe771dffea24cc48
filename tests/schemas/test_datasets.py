"""The table of public training sets."""

from schemas.datasets import DATASETS, TRAINED_ON
from schemas.experiments import EXPERIMENTS, read_experiment


def test_every_dataset_has_one_row_by_year() -> None:
    assert len({each.name for each in DATASETS}) == len(DATASETS)
    assert [each.year for each in DATASETS] == sorted(each.year for each in DATASETS)


def test_training_sets_of_the_papers_tables_have_the_numbers_of_their_files() -> None:
    rows = [row for name in EXPERIMENTS for row in read_experiment(name).rows]
    named = {row.about["Train set"] for row in rows if "Train set" in row.about}
    assert named <= set(TRAINED_ON)
    assert (TRAINED_ON["MS1MV2"].identities, TRAINED_ON["MS1MV2"].images) == (85_742, 5_822_653)
