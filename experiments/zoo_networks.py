"""Networks of pytorchcv and timm that pruning is tried on: their names, and how each is made with random weights."""

from collections.abc import Callable
from typing import Any

PYTORCHCV = """
    alexnet zfnet vgg11 bn_vgg11 bninception resnet10 resnet18_wd4 resnetbc14b preresnet10 preresnetbc14b
    resnext14_16x4d seresnet10 seresnetbc26b sepreresnet10 senet16 resnestabc14 ibn_resnet50 ibnb_resnet50
    ibn_densenet121 airnet50_1x64d_r2 bam_resnet18 cbam_resnet18 resattnet56 sknet50 scnet50 regnetx002 regnety002
    diaresnet10 diracnet18v2 densenet121 condensenet74_c4_g4 sparsenet121 peleenet wrn50_2 drnc26 dpn68 darknet_tiny
    darknet53 channelnet bagnet9 dla34 dla46xc fishnet99 espnetv2_wd2 dicenet_wd5 hrnet_w18_small_v1 vovnet27s
    selecsls42 hardnet39ds squeezenet_v1_1 sqnxt23_w1 shufflenet_g3_wd4 shufflenetv2_wd2 menet108_8x1_g3 mobilenet_wd4
    mobilenetv2_wd4 mobilenetv3_small_w7d20 igcv3_wd4 ghostnet mnasnet_small proxylessnas_cpu xception inceptionv3
    inceptionv4 efficientnet_b0 mixnet_s
""".split()  # noqa: SIM905 (one name per line would take pages)
TIMM = """
    resnet10t resnet18 resnet26d legacy_seresnet18 ecaresnet26t resnext50_32x4d res2net50_26w_4s resnest14d skresnet18
    resnetv2_50 nf_regnet_b0 densenet121 dla34 dla46_c dpn48b efficientnet_b0 efficientnet_lite0 efficientnetv2_rw_t
    tf_efficientnet_b0 mnasnet_small mobilenetv2_050 mobilenetv3_small_050 mobilenetv4_conv_small_050 lcnet_035
    tinynet_e fbnetc_100 hardcorenas_a mixnet_s ghostnet_050 regnetx_002 regnety_002 regnetz_005 repvgg_a0 mobileone_s0
    hgnet_tiny hgnetv2_b0 hrnet_w18_small inception_v3 inception_v4 inception_next_atto convnext_atto convnextv2_atto
    cspresnet50 cspdarknet53 gernet_s ese_vovnet19b_slim_dw selecsls42 xception41 rexnet_100 repghostnet_050
    repvit_m0_9 starnet_s1 tresnet_m vgg11 vgg11_bn vit_tiny_patch16_224 deit_tiny_patch16_224
    swin_tiny_patch4_window7_224 mixer_s32_224 poolformer_s12 edgenext_xx_small efficientformer_l1 levit_128s
    mobilevit_xxs pvt_v2_b0 fastvit_t8 fasternet_t0 mambaout_femto visformer_tiny
""".split()  # noqa: SIM905 (one name per line would take pages)


def build(name: str) -> tuple[Callable[[], Any], Any]:
    """A function that makes the network, and an example batch of four images.

    They are as small as the network takes them, but not so small that BatchNorm would see one value for each image:
    with two images of 32 pixels the gradients of a deep network overflow, pruned or not.
    """
    import torch

    library, model = name.split("/")
    make = _timm(model) if library == "timm" else _pytorchcv(model)
    net = make().eval()
    for side in (64, 96, 128, 224, 299):
        torch.manual_seed(0)
        x = torch.randn(4, 3, side, side)
        try:
            with torch.no_grad():
                net(x)
        except Exception:  # too small, or a network for one size
            continue
        return make, x
    raise RuntimeError(f"{name} runs at no size up to 299")


def _timm(model: str) -> Callable[[], Any]:
    from experiments import torchvision_stub

    torchvision_stub.install()
    import timm

    return lambda: timm.create_model(model, num_classes=10)


def _pytorchcv(model: str) -> Callable[[], Any]:
    import numpy
    from pytorchcv.model_provider import get_model
    from torch import nn

    setattr(numpy, "int", int)  # noqa: B010 (pytorchcv's RegNets use the name that numpy 1.24 took away)

    def make() -> Any:
        net = get_model(model, num_classes=10)
        if isinstance(getattr(getattr(net, "features", None), "final_pool", None), nn.AvgPool2d):
            net.features.final_pool = nn.AdaptiveAvgPool2d(1)  # the same at 224 pixels, and any other size too
        return net

    return make


def spread(net: Any, x: Any) -> None:
    """Statistics and scales as different from channel to channel as in a trained network."""
    import torch
    from torch import nn

    generator = torch.Generator().manual_seed(1)
    norms = [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for module in norms:
        if module.weight is not None:
            with torch.no_grad():
                module.weight.uniform_(0.7, 1.3, generator=generator)
    for parameter in net.parameters():  # heads, gains and layer scales that start as zero would hide what is wrong
        if parameter.numel() and float(parameter.detach().abs().max()) < 1e-3:
            parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    before = [module.momentum for module in norms]
    for module in norms:
        module.momentum = None  # the statistics of the passes below, and nothing of the ones they start with
        module.reset_running_stats()
    net.train()
    with torch.no_grad():
        net(x)
    for module, momentum in zip(norms, before, strict=True):
        module.momentum = momentum
