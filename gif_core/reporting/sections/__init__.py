"""Sections of the report: what each of them reads from the artifacts of a run and shows.

glance    The run in a few numbers
scores    Every evaluation set, published metrics beside them, the worst errors
faces     Sample images, and the number of images per identity
vectors   Identity vectors, separation and its cost
codes     The code tree with faces, how full it is, how much structure codes keep
training  Curves of the training, and the cost of heads
lineage   Manifests of all artifacts, and the configuration to reproduce the run
inputs    Types and readers that several sections share
"""
