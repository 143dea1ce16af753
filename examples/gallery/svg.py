"""An SVG, which no model sees, is kept for the person beside it."""


class Star:
    def _repr_svg_(self):
        return '<svg xmlns="http://www.w3.org/2000/svg" width="60" height="60"><path d="M30 2 38 22 58 22 42 35 48 56 30 44 12 56 18 35 2 22 22 22Z" fill="gold"/></svg>'


Star()
