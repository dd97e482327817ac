"""Point-to-point messages that a rank waits to receive, and that no rank has sent.

Messages of a pair come in order: if there are more recvs than sends, the first of those too many has no partner. It is
told if its rank has issued nothing since but the rest of its batch; that it waits there nobody knows, as it may have
been posted ahead. Sends are not told, as NCCL may buffer them. States are of no use: those of a batch are never
updated. Where one of the pair has dropped older entries, or left no file, nobody can count.
"""

from collections import defaultdict


def not_sent(recordings):
    """rank -> the recv that it issued last, in words."""
    ranks_of = {key: sorted(ranks) for each in recordings for key, ranks in each.groups.items()}
    sent, received = defaultdict(int), defaultdict(list)
    whole = {rank for each in recordings if each.whole for rank in each.ranks}
    for message in (message for each in recordings for message in each.messages):
        members = ranks_of.get(message.group, [])
        if max(message.own, message.other) < len(members):
            own, other = members[message.own], members[message.other]
            if message.sent:
                sent[message.group, own, other] += 1
            else:
                received[message.group, other, own].append(message)
    found = {}
    for (group, source, target), recvs in received.items():
        alone = recvs[sent[group, source, target] :]
        if alone and alone[0].is_last and {source, target} <= whole:
            found[target] = f"a recv from rank {source}, which has not sent it ({alone[0].line})"
    return found
