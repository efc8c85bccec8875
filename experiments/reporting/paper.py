"""What the paper prints (Theis, Korshunova, Tejani, Huszár, arXiv 1801.05787), read from its text and tables."""

from typing import NamedTuple

LINK = "https://arxiv.org/abs/1801.05787"


class LeNetRow(NamedTuple):
    """A row of Table 1; ``ours`` is the method's name in results/lenet_mnist.json, None for others' results."""

    method: str
    error_percent: float
    cost_percent: float
    ours: str | None


TABLE1 = (
    LeNetRow("LeCun et al. (1998), unpruned", 0.80, 100, "unpruned"),
    LeNetRow("Han et al. (2015), single parameters", 0.77, 16, "single parameters, magnitude (Han et al.)"),
    LeNetRow("Fisher (β = 0)", 0.84, 26, "Fisher (beta = 0)"),
    LeNetRow("Fisher (β > 0)", 0.79, 10, "Fisher (beta > 0)"),
    LeNetRow("Fisher (β*)", 0.86, 17, "Fisher (beta*)"),
)

FIGURE1 = (
    "loss against computational cost, pruning 10 maps at a time with fixed parameters, signals from the whole of "
    "MIT1003: the naive methods L1A and L1W do poorly; Fisher with β = 0 does as well as Molchanov et al., normalised "
    "or not; a weight β on the cost does better, each β being best in its own range; freezing the costs at their first "
    "estimate does worse than updating them; β* does well while few maps are pruned and may do worse when many are"
)

FIGURE2 = (
    "speed of one core against AUC, log-likelihood, NSS and SIM on CAT2000's training set, a point for each number of "
    "pruned maps and β, lines through the Pareto-optimal ones: FastGaze is the faster, more so with β > 0; DenseGaze "
    "predicts better except in SIM; in log-likelihood, NSS and SIM both are ahead of DeepGaze II, in AUC DenseGaze is "
    "ahead of it and FastGaze slightly behind"
)
MACHINE = "PyTorch, one core of an Intel Xeon E5-2620 (2.4 GHz), mean over 6 images of 512x384"

DEEPGAZE2_MS = 3590
DEEPGAZE2_GFLOP = 240.6
SPEEDUP_SAME_AUC = 10  # "roughly 10x with DenseGaze"
SPEEDUP_SAME_LIKELIHOOD = 75  # "more than 75x"
SPEEDUP_REGULARISED = 2  # "up to 2x for FastGaze when comparing regularized and non-regularized models"

FIGURE3_MS = (1390, 356, 258, 91)
FIGURE3 = (
    "the number of maps in each layer of FastGaze, unpruned and pruned to three degrees, beside the maps of one image "
    "of CAT2000 with its fixations: 1.39 s, 356 ms, 258 ms and 91 ms. Strongly regularised networks alternate between "
    "layers with many maps and layers with very few, and the maps look very similar despite a 15-fold "
    "difference in speed"
)

FIGURE4_MS = {"DeepGaze II": 3590, "DenseGaze": 577, "FastGaze": 356, "FastGaze, heavily pruned": 91}
FIGURE4 = (
    "five images of CAT2000 with the maps of the DeepGaze II ensemble (3.59 s for one member), a slightly pruned "
    "DenseGaze (577 ms), a slightly pruned FastGaze (356 ms) and a heavily pruned FastGaze (91 ms, 39 times as fast as "
    "DeepGaze II). All are similar; the last is a little blurrier and still responds to faces, people, objects and text"
)


class Benchmark(NamedTuple):
    """A row of Table 2: MIT300, by the MIT benchmark's own code."""

    model: str
    auc: float
    kl: float
    sim: float
    nss: float
    gflop: float | None = None


TABLE2 = (
    Benchmark("Center Bias", 0.78, 1.24, 0.45, 0.92),
    Benchmark("eDN", 0.82, 1.14, 0.41, 1.14),
    Benchmark("SalNet", 0.83, 0.81, 0.52, 1.51),
    Benchmark("DeepGaze I", 0.84, 1.23, 0.39, 1.22),
    Benchmark("SAM-ResNet", 0.87, 1.27, 0.68, 2.34),
    Benchmark("DSCLRCN", 0.87, 0.95, 0.68, 2.35),
    Benchmark("DeepFix", 0.87, 0.63, 0.60, 2.26),
    Benchmark("SALICON", 0.87, 0.54, 0.60, 2.12),
    Benchmark("DeepGaze II", 0.88, 0.96, 0.46, 1.29, 240.6),
    Benchmark("FastGaze", 0.85, 1.21, 0.61, 2.00, 10.7),
    Benchmark("DenseGaze", 0.86, 1.20, 0.63, 2.16, 12.8),
)


class Published(NamedTuple):
    """What the MIT/Tübingen benchmark or the authors publish of a peer; not measured here."""

    model: str
    cost: str
    auc: str
    nss: str
    information_gain: str


PEERS = (
    Published("DeepGaze II", "153 GFLOP at 512x384", ".873", "2.34", ".925"),
    Published("DeepGaze IIE", "76-104 M parameters", ".883", "2.53", "1.07"),
    Published("UNISAL", "3.7 M parameters, 2.9 GFLOP at 384x288", ".877", "2.37", ".951"),
    Published("MSI-Net", "25 M parameters, 91 GFLOP at 320x240", ".874", "2.31", ".919"),
    Published("FastSal-A", "3.65 M parameters, 0.73 GFLOP at 256x192", "-", "-", "-"),
    Published("other people (leave one out)", "", ".898", "2.85", "1.32"),
)
