"""Tiny networks with attention, norms over channels and linear layers on images, for `odd_nets.py`."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ConvNeXt(nn.Module):
    """Depthwise, channels last, LayerNorm, linear layers, layer scale, residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.dw = nn.Conv2d(3, 8, 2, 2), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.gamma = nn.Parameter(torch.rand(8) + 0.5)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.norm(self.dw(x).permute(0, 2, 3, 1))
        y = self.down(F.gelu(self.up(y))) * self.gamma
        x = x + y.permute(0, 3, 1, 2)
        out: Tensor = self.head(x.mean((-2, -1)))
        return out


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.width = heads, width // heads, width
        self.scale = self.head_dim**-0.5
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        share = (q * self.scale @ k.transpose(-2, -1)).softmax(-1)
        out: Tensor = self.proj((share @ v).transpose(1, 2).reshape(b, n, self.width))
        return out


class Relative(nn.Module):
    """Attention with a learned bias for each head and distance, looked up by a buffer, as in LeViT and Swin."""

    index: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.num_heads, self.head_dim = nn.Conv2d(3, 12, 4, 4), 3, 4
        self.qkv, self.proj, self.width = nn.Linear(12, 36), nn.Linear(12, 3), 12
        self.table = nn.Parameter(torch.randn(3, 7))
        self.register_buffer("index", torch.arange(4)[:, None] - torch.arange(4) + 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        share = (q @ k.transpose(-2, -1) + self.table[:, self.index]).softmax(-1)
        out: Tensor = self.proj((share @ v).transpose(1, 2).reshape(b, n, self.width))
        return out


class ViT(nn.Module):
    """Patches, class token, position codes, two blocks."""

    def __init__(self, width: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.codes = nn.Parameter(torch.randn(1, 5, width))
        self.attention = nn.ModuleList(Attention(width, heads) for _ in range(2))
        self.norm1, self.norm2 = (nn.ModuleList(nn.LayerNorm(width) for _ in range(2)) for _ in range(2))
        self.mlp = nn.ModuleList(nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width)) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.codes
        for a, m, n1, n2 in zip(self.attention, self.mlp, self.norm1, self.norm2, strict=True):
            x = x + a(n1(x))
            x = x + m(n2(x))
        out: Tensor = self.head(self.norm(x)[:, 0])
        return out


class Encoder(nn.Module):
    """nn.TransformerEncoder on tokens of an image."""

    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.batch_first, self.embed = batch_first, nn.Conv2d(3, 8, 4, 4)
        layer = nn.TransformerEncoderLayer(8, 4, 12, dropout=0.0, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2)
        x = self.encoder(x.transpose(1, 2) if self.batch_first else x.permute(2, 0, 1))
        out: Tensor = self.head(x.mean(1 if self.batch_first else 0))
        return out


class Windows(nn.Module):
    """Attention inside windows that are moved into the batch, as in Swin."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.attention, self.last = (
            nn.Conv2d(3, 12, 1), nn.LayerNorm(12), Attention(12, 3), nn.Conv2d(12, 2, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        y = self.embed(x).permute(0, 2, 3, 1)
        b, h, w, c = y.shape
        z = self.norm(y).view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        z = self.attention(z).view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        out: Tensor = self.last((y + z).permute(0, 3, 1, 2))
        return out


class Named(nn.Module):
    """Attention whose inputs are given by name."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Conv2d(3, 8, 4, 4), nn.LayerNorm(8)
        self.attention, self.head = nn.MultiheadAttention(8, 4, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        y = self.norm(x)
        out: Tensor = self.head((x + self.attention(key=y, value=y, query=y)[0]).mean(1))
        return out


class Queries(nn.Module):
    """Learned queries look at an image, with the batch in the second dimension, as in DETR."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.queries = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(5, 1, 8))
        self.decoder = nn.TransformerDecoderLayer(8, 2, 12, dropout=0.0)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.embed(x).flatten(2).permute(2, 0, 1)
        out: Tensor = self.head(self.decoder(self.queries.repeat(1, x.shape[0], 1), seen)).transpose(0, 1)
        return out


class Coordinates(nn.Module):
    """A weight for each place from a network that reads no image, as position biases are made in Swin v2."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 4, 1)
        self.inner, self.outer = nn.Linear(2, 10), nn.Linear(10, 1)
        self.register_buffer("table", torch.randn(8, 8, 2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.first(x) * self.outer(self.inner(self.table).relu())[..., 0])
        return out
