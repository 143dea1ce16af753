"""A picture too large to be shown in full: a smaller one is, and the original is kept."""

import matplotlib.pyplot as plt
import numpy as np

figure, axes = plt.subplots(figsize=(36, 20))
t = np.linspace(0, 60, 6000)
axes.plot(t, np.sin(t) + np.sin(1.7 * t) / 2, linewidth=2)
axes.set_title("3600 pixels wide", fontsize=40)
