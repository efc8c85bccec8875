"""LeNet-5 as in Caffe's MNIST example: no nonlinearity but pooling between the convolutions."""

from torch import Tensor, nn

from fastgaze.core.spec import LeNetSpec


class LeNet5(nn.Module):
    """conv 5x5, pool, conv 5x5, pool, linear, ReLU, linear: digits (N, 1, 28, 28) -> class scores (N, classes)."""

    def __init__(self, spec: LeNetSpec) -> None:
        super().__init__()
        conv1, conv2, fc1, classes = spec.maps
        self.conv1 = nn.Conv2d(1, conv1, 5)
        self.pool1 = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(conv1, conv2, 5)
        self.pool2 = nn.MaxPool2d(2)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Linear(conv2 * 4 * 4, fc1)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(fc1, classes)

    @property
    def spec(self) -> LeNetSpec:
        """The widths that the layers have now, after any pruning."""
        maps = (self.conv1.out_channels, self.conv2.out_channels, self.fc1.out_features, self.fc2.out_features)
        return LeNetSpec("lenet5", maps)

    def forward(self, digits: Tensor) -> Tensor:
        """digits (N, 1, 28, 28) in 0..1 -> scores (N, classes) before the softmax."""
        x = self.pool1(self.conv1(digits))  # (N, 20, 12, 12)
        x = self.pool2(self.conv2(x))  # (N, 50, 4, 4)
        scores: Tensor = self.fc2(self.relu(self.fc1(self.flatten(x))))
        return scores
