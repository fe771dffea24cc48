"""Claims about opening what other stages have published."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from gif_core.runtime import map_tensor


@pytest.mark.parametrize("shape", [(7, 3), (0, 3)])
def test_a_mapped_tensor_is_the_stored_one(tmp_path: Path, shape: tuple[int, int]) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    save_file({"another": np.ones(5, dtype=np.float32), "code_vectors": values}, tmp_path / "h.safetensors")
    mapped = map_tensor(tmp_path / "h.safetensors", "code_vectors")
    np.testing.assert_array_equal(mapped, values)
    assert mapped.dtype == np.float32
    assert isinstance(mapped, np.memmap) == bool(values.size)
    assert values.size == 0 or not mapped.flags.writeable


def test_another_precision_is_refused(tmp_path: Path) -> None:
    save_file({"code_vectors": np.ones((2, 2))}, tmp_path / "h.safetensors")
    with pytest.raises(ValueError, match="is F64 where F32 is expected"):
        map_tensor(tmp_path / "h.safetensors", "code_vectors")
