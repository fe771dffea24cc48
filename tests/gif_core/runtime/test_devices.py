import torch

from gif_core.runtime import tuned_kernels


def settings() -> tuple[bool, str]:
    return torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()


def test_kernels_are_tuned_for_a_gpu_and_as_they_were_afterwards() -> None:
    before = settings()
    with tuned_kernels(torch.device("cuda"), reduced=True):
        assert settings() == (True, "high")
    assert settings() == before
    with tuned_kernels(torch.device("cuda"), reduced=False):
        assert settings() == (True, before[1]), "who trains in fp32 gets fp32"
    with tuned_kernels(torch.device("cpu"), reduced=True):
        assert settings() == before
