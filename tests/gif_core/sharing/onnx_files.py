"""What insightface's loader looks at in an ONNX file; a slow test asks the package itself."""

from pathlib import Path


def check_insightface_takes(path: Path) -> None:
    """One input of 112×112, one output, and no Sub and Mul in front, by which it tells networks that scale pixels."""
    import onnx

    graph = onnx.load(path).graph
    (given,), (_,) = graph.input, graph.output
    assert [each.dim_value for each in given.type.tensor_type.shape.dim][1:] == [3, 112, 112]
    names = [node.name for node in graph.node[:8]]
    assert not (any(each.startswith("Sub") for each in names) and any(each.startswith("Mul") for each in names))
