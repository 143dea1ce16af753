"""Four axes in one figure; the value of the last expression is the figure itself, and is shown once."""

import matplotlib.pyplot as plt
import numpy as np

rng = np.random.default_rng(7)
figure, axes = plt.subplots(2, 2, figsize=(7, 5), layout="constrained")
axes[0, 0].hist(rng.normal(size=500), bins=30)
axes[0, 1].scatter(*rng.random((2, 60)), s=rng.random(60) * 200, alpha=0.5)
axes[1, 0].boxplot([rng.normal(i, 1, 100) for i in range(4)])
axes[1, 1].pie([5, 3, 2], labels=["a", "b", "c"])
figure
