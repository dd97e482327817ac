"""Right answers pass, however they are written. No wrong answer does, and each is told what is meant for it; so is each
mistake that a check knows, an edit of the solution."""

import importlib
from pathlib import Path
from random import Random

import pytest

from tinydist.lab import judge, tracer
from tinydist.lab.blanks import is_stub
from tinydist.syllabus.registry import chapters, course, find, of_chapter


@pytest.fixture(autouse=True)
def endless_ones_are_stopped_soon(monkeypatch):
    monkeypatch.setattr(tracer, "LINES", 25_000)


@pytest.fixture(autouse=True, scope="class")
def what_a_chapter_gave_is_forgotten_when_it_ends(request):
    """Else garbage is looked for in gigabytes, as long as this process tests."""
    yield
    if request.cls:
        for exercise in exercises(request.cls.chapter):
            exercise._runs.clear()


class Answers:
    """A class for each chapter: tests of different classes run side by side, and those of one share what solutions and
    their mistakes give."""

    def test_right_answer(self, answer):
        verdict = judged(answer)
        assert verdict.passed, verdict

    def test_wrong_answer(self, answer, rejected_by, told):
        verdict = judged(answer)
        assert verdict.state == "wrong"
        assert [line.name for line in verdict.lines if line.state == "wrong"] == [rejected_by], verdict.wrong
        assert told.lower() in str(verdict.wrong).lower()  # facts begin in capitals where a reason precedes them

    def test_each_mistake_is_told_its_own_words(self, exercise, mistake):
        verdict = judged(exercise.variant(mistake))
        assert verdict.state == "wrong" and mistake.words in str(verdict.wrong), verdict

    def test_of_several_bugs_that_are_left_one_is_told(self, exercise):
        given = [each.words for each in exercise.mistakes if each.given]
        for several in exercise.suspects[len(exercise.mistakes) :]:
            answer = exercise.variant(several)
            if is_stub(answer, exercise.source):  # of all of them
                continue
            verdict = judge(answer)
            assert verdict.state == "wrong" and any(words in str(verdict.wrong) for words in given), verdict

    def test_other_right_ways_pass(self, exercise):
        assert all(judge(exercise.variant(way)).passed for way in exercise.alternatives)


class TestStartHere(Answers):
    chapter = "start_here"


class TestRanksAndGroups(Answers):
    chapter = "ranks_and_groups"


class TestHangsOnACluster(Answers):
    chapter = "hangs_on_a_cluster"


class TestCollectives(Answers):
    chapter = "collectives"


class TestHardwareAndCost(Answers):
    chapter = "hardware_and_cost"


class TestCollectivesOnClusters(Answers):
    chapter = "collectives_on_clusters"


class TestLatencyAndNccl(Answers):
    chapter = "latency_and_nccl"


class TestCostOfTraining(Answers):
    chapter = "cost_of_training"


class TestMixedPrecision(Answers):
    chapter = "mixed_precision"


class TestDataParallel(Answers):
    chapter = "data_parallel"


class TestScalingDataParallel(Answers):
    chapter = "scaling_data_parallel"


class TestZero(Answers):
    chapter = "zero"


class TestZeroInPractice(Answers):
    chapter = "zero_in_practice"


class TestTensorParallel(Answers):
    chapter = "tensor_parallel"


class TestSequenceParallel(Answers):
    chapter = "sequence_parallel"


class TestPipelineParallel(Answers):
    chapter = "pipeline_parallel"


class TestPipelineSchedules(Answers):
    chapter = "pipeline_schedules"


class TestAttentionHeads(Answers):
    chapter = "attention_heads"


class TestLatentAttention(Answers):
    chapter = "latent_attention"


class TestFlashAttention(Answers):
    chapter = "flash_attention"


class TestFlashKernels(Answers):
    chapter = "flash_kernels"


class TestThreeDParallel(Answers):
    chapter = "three_d_parallel"


class TestConfigurations(Answers):
    chapter = "configurations"


class TestRealSystems(Answers):
    chapter = "real_systems"


class TestMachines(Answers):
    chapter = "machines"


class TestFP8AndFP4(Answers):
    chapter = "fp8_and_fp4"


class TestPlanningARun(Answers):
    chapter = "planning_a_run"


class TestPlansAndMeasurements(Answers):
    chapter = "plans_and_measurements"


class TestServing(Answers):
    chapter = "serving"


class TestServingMany(Answers):
    chapter = "serving_many"


class TestYourOwnProgram(Answers):
    chapter = "your_own_program"


class TestProfileAndForecast(Answers):
    chapter = "profile_and_forecast"


class TestLongContext(Answers):
    chapter = "long_context"


class TestContextParallel(Answers):
    chapter = "context_parallel"


class TestFewerBytes(Answers):
    chapter = "fewer_bytes"


class TestLessDataAndRates(Answers):
    chapter = "less_data_and_rates"


class TestQuantization(Answers):
    chapter = "quantization"


class TestGgufAndKvCache(Answers):
    chapter = "gguf_and_kv_cache"


class TestMixtureOfExperts(Answers):
    chapter = "mixture_of_experts"


class TestMapOfTools(Answers):
    chapter = "map_of_tools"


class TestCompilers(Answers):
    chapter = "compilers"


def judged(answer):
    if reason := find(answer).unavailable():
        pytest.skip(reason)
    return judge(answer)


def answers(kind, chapter):
    """Of the file for a chapter: (label, answer, ...)."""
    return getattr(importlib.import_module(f"lab.{kind}_answers.{chapter}"), f"{kind.upper()}_ANSWERS")


def exercises(chapter):
    (full,) = (each for each in chapters() if each.partition("_")[2] == chapter)
    return of_chapter(full)


def pytest_generate_tests(metafunc):
    if not metafunc.cls:
        return
    wanted, chapter = metafunc.fixturenames, metafunc.cls.chapter
    if "rejected_by" in wanted:
        cases = {label: case for label, *case in answers("wrong", chapter)}
        metafunc.parametrize("answer, rejected_by, told", cases.values(), ids=cases)
    elif "answer" in wanted:
        cases = dict(answers("right", chapter))
        metafunc.parametrize("answer", cases.values(), ids=cases)
    elif "mistake" in wanted:
        cases = [(exercise, mistake) for exercise in exercises(chapter) for mistake in exercise.mistakes]
        ids = [f"{exercise.name}-{mistake.words[:40]}" for exercise, mistake in cases]
        metafunc.parametrize("exercise, mistake", cases, ids=ids)
    else:
        metafunc.parametrize("exercise", exercises(chapter), ids=lambda exercise: exercise.name)


CHAPTERS = [each.chapter for each in Answers.__subclasses__()]
WRONG_ANSWERS = [each for chapter in CHAPTERS for each in answers("wrong", chapter)]


@pytest.mark.parametrize("kind", ["right", "wrong"])
def test_every_chapter_is_judged(kind):
    files = {path.stem for path in Path(__file__).with_name(f"{kind}_answers").glob("*.py")}
    assert files == set(CHAPTERS) == {chapter.partition("_")[2] for chapter in chapters()}
    assert all(len({label for label, *_ in answers(kind, each)}) == len(answers(kind, each)) for each in CHAPTERS)


@pytest.mark.parametrize("exercise", course(), ids=lambda exercise: exercise.name)
def test_an_exercise_keeps_within_its_budget(exercise):
    """What an edit of the solution says is a mistake; a wrong answer is written for what no edit can."""
    chapter = exercise.chapter.partition("_")[2]
    wrong, right = ([each[1].__name__ for each in answers(kind, chapter)] for kind in ("wrong", "right"))
    assert len(exercise.mistakes) <= 8
    assert 1 <= wrong.count(exercise.name) <= 5
    assert right.count(exercise.name) <= 3


def test_every_property_rejects_an_answer():
    """A target that no wrong answer and no mistake fails, in any exercise, might be one that cannot fail."""
    rejecting = {rejected_by for *_, rejected_by, _ in WRONG_ANSWERS}
    checks = {exercise: {name for name, *_ in exercise.check(lambda *_: None)} for exercise in course()}
    for exercise, names in checks.items():
        for mistake in exercise.mistakes if not exercise.unavailable() else ():
            if names <= rejecting:
                break
            rejecting |= {line.name for line in judge(exercise.variant(mistake)).lines if line.state == "wrong"}
    assert set().union(*checks.values()) <= rejecting


def variants():
    """Two of each exercise, drawn from one seed; the others in ``make exhaustive``."""
    for exercise in course():
        those = [each for target in exercise.targets for each in getattr(target, "variants", ())]
        few = Random(1).sample(those, min(2, len(those)))
        for number, each in enumerate(those):
            marks = () if each in few else pytest.mark.exhaustive
            yield pytest.param(exercise, each, those, id=f"{exercise.name}-{number}", marks=marks)


@pytest.mark.parametrize("exercise, variant, those", variants())
def test_a_variant_of_a_result_is_told_a_reason(exercise, variant, those):
    """Where several give the same, the words of another one of them."""
    if exercise.unavailable():
        pytest.skip(exercise.unavailable())
    told = str(judge(exercise.variant(variant), exercise).wrong)
    assert any(each.words in told for each in (*exercise.mistakes, *those)), told
