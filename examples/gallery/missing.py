"""A package that is not there: the error says which are, and who can add it."""

import seabron
