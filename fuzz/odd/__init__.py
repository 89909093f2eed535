"""Odd arguments for every public function: what fails must say which argument is wrong and what is expected.

python -m fuzz.odd                  # every input; exit status 1 when one fails in another way
python -m fuzz.odd --only Message   # only the inputs whose name holds this text
python -m fuzz.odd --share 20       # one input of twenty, always the same ones
"""
