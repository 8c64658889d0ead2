"""A task of one's own in one file: MQAR in which a share of the facts is overwritten by noise."""

import dataclasses

import torch
from pydantic import Field

from recallscope import MQARSpec, task


@task("my_noisy_mqar")
class NoisyMQAR(MQARSpec):
    """MQAR; the value of some facts is replaced by a random token in the context, and asked all the same."""

    noise: float = Field(0.25, ge=0, le=1, description="chance that the value of a fact is overwritten")

    def draw(self, batch_size, generator):
        batch = super().draw(batch_size, generator)
        tokens, N_f = batch.tokens.clone(), self.num_facts
        values = tokens[:, 1 : 2 * N_f : 2]
        lost = torch.rand(values.shape, generator=generator, device=values.device) < self.noise
        other = torch.randint(self.vocab_size, values.shape, generator=generator, device=values.device)
        values.copy_(torch.where(lost, other, values))
        return dataclasses.replace(batch, tokens=tokens)
