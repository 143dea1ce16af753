"""What was drawn before an exception arrives."""

import matplotlib.pyplot as plt

plt.figure(figsize=(3, 2))
plt.plot([1, 2, 4])
plt.title("before the error")


def ratio(a, b):
    return a / b


ratio(1, 0)
