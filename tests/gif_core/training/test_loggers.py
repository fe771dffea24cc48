from pathlib import Path

from gif_core.training import TrainingLogs, TrainingReport


def events(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("events.out.tfevents.*"))


def test_a_machine_that_has_no_reports_leaves_the_events_of_the_one_that_has_alone(tmp_path: Path) -> None:
    with TrainingLogs(tmp_path, wandb=None, name="first") as leads:
        leads.add(TrainingReport(1, 2, 0, {"loss": 3.0}))
        written = events(tmp_path)
        assert len(written) == 1
        with TrainingLogs(tmp_path, wandb=None, name="second"):
            pass
        leads.add(TrainingReport(2, 2, 0, {"loss": 2.0}))
    assert events(tmp_path) == written


def test_events_of_an_earlier_attempt_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.host").write_bytes(b"earlier")
    with TrainingLogs(tmp_path, wandb=None, name="again") as logs:
        logs.add(TrainingReport(1, 1, 0, {"loss": 3.0}))
    assert "events.out.tfevents.1.host" not in events(tmp_path)
    assert len(events(tmp_path)) == 1


def test_tensorboard_shows_the_metrics_of_every_step_while_the_training_runs(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with TrainingLogs(tmp_path, wandb=None, name="run") as logs:
        for step, loss in ((1, 3.0), (2, 2.5)):
            logs.add(TrainingReport(step, 2, 0, {"loss": loss, "val_accuracy/LFW": 0.5}))
        shown = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in shown.Scalars("loss")] == [(1, 3.0), (2, 2.5)]
    assert [event.value for event in shown.Scalars("val_accuracy/LFW")] == [0.5, 0.5]
