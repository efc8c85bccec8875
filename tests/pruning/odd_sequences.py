"""Tiny networks for sound, text and video, and others that carry something along: states, places, indices, latents."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def old_weight_norm(module: nn.Module, **options: Any) -> nn.Module:
    """By a hook: deprecated, and still in many networks for sound."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nn.utils.weight_norm(module, **options)


class Temporal(nn.Module):
    """A temporal block of weight-normalised convolutions, dense, transposed and depthwise, and a linear layer."""

    def __init__(self, norm: Callable[..., Any]) -> None:
        super().__init__()
        self.conv1, self.conv2 = norm(nn.Conv1d(3, 8, 3, padding=2)), norm(nn.Conv1d(8, 8, 3, groups=2, padding=1))
        self.short, self.each = nn.Conv1d(3, 8, 1), norm(nn.Conv1d(8, 8, 3, groups=8))
        self.up, self.one = norm(nn.ConvTranspose1d(8, 6, 2, 2)), norm(nn.Conv1d(6, 6, 1), dim=None)
        self.linear, self.last = norm(nn.Linear(6, 10)), nn.Linear(10, 2)

    def forward(self, x: Tensor) -> Any:
        y = F.relu(self.conv2(F.relu(self.conv1(x)[:, :, :-2])) + self.short(x))
        y = self.one(self.up(self.each(y)).relu())
        return self.last(self.linear(y[:, :, -1]).relu())


class Reading(nn.Module):
    """Convolutions, whose columns are the steps of a recurrent layer in both directions (text in pictures)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.next = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1)
        self.rnn, self.last = nn.LSTM(8 * 4, 5, num_layers=2, bidirectional=True), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Any:
        y = self.next(F.max_pool2d(self.conv(x).relu(), (2, 1))).relu()
        steps, _ = self.rnn(y.flatten(1, 2).permute(2, 0, 1))
        return self.last(steps).transpose(0, 1)


class Frames(nn.Module):
    """Frame by frame through a trunk and a recurrent layer, which hands its state on."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3))
        self.rnn, self.last = nn.GRU(8, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Any:
        state = None
        for k in range(x.shape[1]):
            y, state = self.rnn(self.trunk(x[:, k]).mean((2, 3)).unsqueeze(1), state)
        return self.last(y[:, -1])


class Cells(nn.Module):
    """Two cells in a loop, with states that begin with zeros or with None."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(6, 8), nn.Linear(5, 9), nn.Linear(4, 2)
        self.gru, self.lstm = nn.GRUCell(8, 5), nn.LSTMCell(9, 4)

    def forward(self, x: Tensor) -> Any:
        h = x.new_zeros(len(x), 5)
        state: tuple[Tensor, Tensor] | None = None
        for k in range(x.shape[1]):
            h = self.gru(self.first(x[:, k]).relu(), h)
            state = self.lstm(self.middle(h).relu(), state)
        assert state is not None
        return self.last(state[0])


class Memory(nn.Module):
    """A convolutional LSTM, whose state begins with zeros of a width that the module holds."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.first = 5, nn.Conv2d(3, 6, 3, padding=1)
        self.gates, self.last = nn.Conv2d(6 + 5, 20, 3, padding=1), nn.Conv2d(5, 1, 1)

    def forward(self, x: Tensor) -> Any:
        b, steps, _, height, width = x.shape
        h = c = torch.zeros(b, self.hidden, height, width).to(x)
        for k in range(steps):
            gates = self.gates(torch.cat((self.first(x[:, k]).relu(), h), 1))
            i, f, o, g = torch.split(gates, self.hidden, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return self.last(h)


class Waves(nn.Module):
    """Gates of a WaveNet, cut out of one condition for all layers at multiples of a number that the module holds."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.first, self.last = 6, nn.Conv1d(1, 6, 1), nn.Conv1d(6, 2, 1)
        self.condition, self.gates = nn.Linear(3, 24), nn.ModuleList(nn.Conv1d(6, 12, 3, padding=1) for _ in range(2))
        self.ends = nn.ModuleList((nn.Conv1d(6, 12, 1), nn.Conv1d(6, 6, 1)))

    def forward(self, x: Tensor, speaker: Tensor) -> Any:
        x, condition = self.first(x), self.condition(speaker)[..., None]
        total = torch.zeros_like(x)
        for k, (gate, end) in enumerate(zip(self.gates, self.ends, strict=True)):
            start = k * 2 * self.hidden
            both = gate(x) + condition[:, start : start + 2 * self.hidden]
            y = end(both[:, : self.hidden].tanh() * both[:, self.hidden :].sigmoid())
            x = x + y[:, : self.hidden]
            total = total + (y[:, self.hidden :] if k == 0 else y)
        return self.last(total)


class Offsets(nn.Module):
    """Features that are read at places which the network predicts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.offset, self.last = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 2, 1), nn.Conv2d(12, 4, 1)

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        at = torch.linspace(-0.9, 0.9, x.shape[-1])
        grid = torch.stack(torch.meshgrid(at, at, indexing="xy"), -1).to(x)[None]
        places = grid + 0.1 * self.offset(x).tanh().permute(0, 2, 3, 1)
        return self.last(F.grid_sample(x, places, align_corners=True))


class Unpooled(nn.Module):
    """Values go back to where pooling took them from."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.next, self.last = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 6, 1), nn.Conv2d(6, 12, 1)
        self.end, self.pool, self.unpool = nn.Conv2d(12, 2, 1), nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x: Tensor) -> Any:
        y, places = self.pool(self.first(x))
        return self.end(self.unpool(self.last(self.next(y).relu()), places))


class Latents(nn.Module):
    """Learned vectors that look at the input, each repeated for every image."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.latents = nn.Linear(7, 8), nn.Parameter(torch.randn(4, 8))
        self.attend, self.last = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        tokens, latents = self.first(x).relu(), self.latents.unsqueeze(0).repeat(x.shape[0], 1, 1)
        return self.last((latents + self.attend(latents, tokens, tokens)[0]).mean(1))
