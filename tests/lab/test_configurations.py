"""The exercises on configurations: their solutions are what DeepSpeed accepts, and the mean that one process has."""

import pytest
import torch
import torch.nn.functional as F
from lab.right_answers.configurations import changed

from tinydist.syllabus.registry import find
from tinydist.training import Config


@pytest.mark.parametrize("case", find("forward_step").cases, ids=str)
def test_the_masked_loss_is_that_of_all_tokens_in_one_process(case):
    one = find("forward_step").module
    batches = [batch for rank in range(case.ranks) for batch in case.arguments(rank)[0]]
    embedding = one.numbers(one.VOCABULARY, one.WIDTH, seed=1).requires_grad_()
    head = one.numbers(one.WIDTH, one.VOCABULARY, seed=2).requires_grad_()
    tokens, labels, masks = (
        torch.cat([batch[name].flatten() for batch in batches]) for name in ("tokens", "labels", "loss_mask")
    )
    counted = masks.bool()
    loss = F.cross_entropy((embedding[tokens] @ head)[counted], labels[counted])
    loss.backward()
    for found in find("forward_step").right(case).returned:
        torch.testing.assert_close(found["lm loss"], loss.detach(), rtol=1e-5, atol=0)
        torch.testing.assert_close(found["the gradient of the embedding"], embedding.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(found["the gradient of the head"], head.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("case", find("mended_config").cases, ids=str)
def test_what_is_mended_adds_up_and_what_is_not_is_no_sum_of_whole_rows(case):
    said, dp, _ = case.arguments(0)
    for found in find("mended_config").right(case).returned:
        told = found["what comes of it"]
        assert ("ValueError" in told) == (said["train_batch_size"] % dp > 0) and "an error" not in told


@pytest.mark.parametrize("case", find("costly_key").cases, ids=str)
def test_no_other_key_saves_more_on_the_fullest_rank(case):
    given = [case.arguments(rank) for rank in range(case.ranks)]
    said, cheaper, *_ = given[0]

    def fullest(configuration):
        return max(peak(configuration) for *_, peak, _ in given)

    saved = {path: fullest(said) - fullest(changed(said, path, value)) for path, value in cheaper.items()}
    most = max(0, *saved.values())
    key = next(path for path in cheaper if saved[path] == most) if most else None
    for found in find("costly_key").right(case).returned:
        assert found["the key"].split(": ")[0] == str(key) and found["the bytes saved"] == f"{most:,}"


@pytest.mark.parametrize("case", find("as_arguments").cases, ids=str)
def test_arguments_mean_what_the_file_means_to_deepspeed(case):
    said, dp = case.arguments(0)
    config = Config(said, f"dp={dp}")
    for found in find("as_arguments").right(case).returned:
        if found["what comes of it"] != "arguments":
            scheduler = said.get("scheduler", {}).get("params", {})
            assert config.plan.zero > 1 or scheduler.get("warmup_type", "log") == "log"
            continue
        plan = config.plan
        assert found["global batch"] == str(config.batch) and found["microbatches"] == str(plan.microbatches)
        assert found["precision"] == plan.precision and found["ZeRO stage"] == str(plan.zero)
        assert found["clipped at"] == str(plan.max_norm).lower()
        assert [float(config.options[name]) for name in ("weight_decay", "eps")] == [
            float(found[name]) for name in ("weight_decay", "eps")
        ]
        for step in (50, 100, 1000, 5000):  # DeepSpeed's value number i is that of step i + 1
            assert found[f"learning rate after step {step}"] == f"{config.options_at(step + 1)['lr']:.4g}"
