def cap(self, N)
    return N - 1
