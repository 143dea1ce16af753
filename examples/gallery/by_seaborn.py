"""seaborn draws by Matplotlib."""

import seaborn

seaborn.scatterplot(x=[1, 2, 3], y=[3, 1, 2])
