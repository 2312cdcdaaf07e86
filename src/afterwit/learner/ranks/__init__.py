"""A learner of several processes: each holds the whole policy, and runs its share of an update's passes.

ranks      what an update needs of the others; a learner of one process is alone and needs nothing
shares     who runs which pass
buckets    sums of many tensors in few messages
group      the ranks of one learner, over torch.distributed
lockstep   passes that all ranks run at the same time, because each holds a part of the model
orders     what rank 0 tells the others to do with it
follow     what the other ranks do: they carry out orders
joining    from torchrun's environment to a group whose machines agree
"""

from afterwit.learner.ranks.ranks import ALONE, Alone, Ranks

__all__ = ["ALONE", "Alone", "Ranks"]
