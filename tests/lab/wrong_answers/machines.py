"""Wrong answers to the exercises of 12b_machines: the property that rejects each, and what it is told."""

from lab.registered import collection, solved

from tinydist.diagnose.command import together

WRONG_ANSWERS, wrong = collection()


# train_under_torchrun


@wrong("train_under_torchrun", "values", "4 ranks, 13 rows, batches of 4")
def by_rank(*arguments):
    return solved("train_under_torchrun", "LOCAL_RANK", "RANK")(*arguments)


@wrong("train_under_torchrun", "printed", "rank 1 prints, too")
def all_print(*arguments):
    told = 'print(f"epoch {epoch}: loss {told.item():.4f}")'
    by_one = "        if rank == 0:\n            "
    return solved("train_under_torchrun", f"{by_one}{told}\n            ", f"        {told}\n{by_one}")(*arguments)


def in_runs(batch, rank, ranks):
    each = len(batch) // ranks
    return batch[rank * each :] if rank == ranks - 1 else batch[rank * each : (rank + 1) * each]


@wrong("train_under_torchrun", "values", "3 ranks, 12 rows, batches of 5")
def the_last_takes_the_rest(*arguments):
    share = "share(batch, rank, ranks)"
    return solved("train_under_torchrun", "batch[rank::ranks]", share, share=in_runs)(*arguments)


@wrong("train_under_torchrun", "printed", "rank 0 prints [0.0, nan]")
def a_mean_of_no_rows(*arguments):
    return solved("train_under_torchrun", ".sum() /", ".mean() * len(errors) /")(*arguments)


@wrong("train_under_torchrun", "bytes", "bytes in all")
def rows_are_sent(*arguments):
    sent = "[dist.broadcast(each, 0) for each in (x, targets)]"
    return solved("train_under_torchrun", "mine = batch", f"{sent}\n            mine = batch")(*arguments)


# wire_time


@wrong("wire_time", "values", "the wire")
def always_infiniband(*arguments):
    _, seconds = solved("wire_time")(*arguments)
    return "IB", seconds


@wrong("wire_time", "values", "The ring goes through all ranks")
def by_the_number_of_nodes(*arguments):
    return solved("wire_time", "2 * (ranks - 1) / ranks", "2 * (ranks // per_node - 1) / (ranks // per_node)")(
        *arguments
    )


@wrong("wire_time", "values", "The lines of those that receive")
def by_its_receivers(*arguments):
    return solved("wire_time", r"\[send\]", r"\[receive\]")(*arguments)


# lost_time


@wrong("lost_time", "values", "the effective part")
def effective_is_a_count_of_steps(log):
    meeting, loading, again, _ = solved("lost_time")(log)
    steps = [step for _, what, step in log if what == "step"]
    return meeting, loading, again, len(set(steps)) / len(steps)


@wrong("lost_time", "values", "seconds of loading")
def the_first_step_is_a_step(log):
    meeting, loading, again, effective = solved("lost_time")(log)
    return meeting, loading - 2.0, again, effective


@wrong("lost_time", "values", "a log need not begin at 0")
def a_log_begins_at_0(*arguments):
    return solved("lost_time", "log[-1][0] - log[0][0]", "log[-1][0]")(*arguments)


# mended_elastic


SHARE = "slice(rank, None, ranks)"


@wrong("mended_elastic", "values", "8 of 8 rows on a rank")
def all_rows_on_all_ranks(*arguments):
    return solved("mended_elastic", SHARE, "slice(None)", "/ len(rows)", "/ len(rows) / ranks")(*arguments)


@wrong("mended_elastic", "values", "its part is 'does not save'")
def saved_only_at_the_end(*arguments):
    return solved("mended_elastic", "and rank == 0", "and False")(*arguments)


@wrong("mended_elastic", "values", "3 ranks, never stopped")
def rows_that_divide(*arguments):
    return solved("mended_elastic", SHARE, "slice(8 // ranks * rank, 8 // ranks * (rank + 1))")(*arguments)


@wrong("mended_elastic", "runs", "barrier()")
def in_the_whole_world(*arguments):
    return solved("mended_elastic", ", group=group)", ")")(*arguments)


@wrong("mended_elastic", "values", "3 ranks, starts on 2 until step 5")
def anew_if_it_cannot_be_read(*arguments):
    renamed = 'files.write("new", state)\n            files.rename("new", "checkpoint")'
    try:
        return solved("mended_elastic", renamed, 'files.write("checkpoint", state)')(*arguments)
    except EOFError:
        return solved("mended_elastic", '"checkpoint" in files', "False")(*arguments)


# culprit


@wrong("culprit", "values", "8 ranks as 4 x 2")
def names_alone(*arguments):
    return solved("culprit", 'entry["input_sizes"]', "0")(*arguments)


@wrong("culprit", "values", "A call that does not fit comes before all else")
def where_all_have_come(*arguments):
    most = "        most = max(kinds"
    return solved("culprit", most, f"        if len(there) < len(groups[group]):\n            continue\n{most}")(
        *arguments
    )


@wrong("culprit", "own work", "tinydist.diagnose")
def as_the_library_tells(*arguments):
    together({})
    return solved("culprit")(*arguments)


@wrong("culprit", "values", "6 ranks as 2 x 3")
def its_place_in_the_group(records, groups):
    what, rank, group, call = solved("culprit")(records, groups)
    return what, groups[group].index(rank), group, call


@wrong("culprit", "values", "Rank 3 waits itself, in call 9 of tp 1, for rank 2")
def whose_last_call_is_the_oldest(records, groups):
    what, rank, group, call = solved("culprit")(records, groups)
    if what == "missing":
        missing = {
            member
            for entries in records
            for entry in entries[-1:]
            for member in groups[entry["process_group"]]
            if not any(is_of(entry, other) for other in records[member])
        }
        rank = min(missing, key=lambda each: records[each][-1]["time_created_ns"] if records[each] else 0)
    return what, rank, group, call


def is_of(entry, other):
    return all(entry[name] == other[name] for name in ("process_group", "collective_seq_id"))
