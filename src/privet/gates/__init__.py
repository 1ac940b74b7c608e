"""Gates: what programs are made of, each with its dealer's half and its participants' half."""
