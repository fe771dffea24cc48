"""Sections of the report: what each one reads from the artifacts of a run.

codes     What the report shows of the codes: the tree with faces of its nodes, how full it is, how good it is
glance    What each section of the report shows, read from the artifacts of a run
scores    What the report shows of evaluation: every set, published figures beside it, and the worst errors
tables    What several sections of the report read from artifacts
training  What the report shows of training: the curves that its head has, and what heads cost
"""
