"""Only tools: no `reset`, no reward."""


class Units:
    def __init__(self, factor: float = 2.54):
        self.factor = factor

    def to_centimetres(self, inches: float) -> float:
        """Convert inches to centimetres.

        Args:
            inches: A length.
        """
        return inches * self.factor
