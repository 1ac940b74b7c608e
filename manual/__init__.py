"""The documents: their reference, written from the code; their commands, checked; their site.

python -m manual          writes docs/reference and the outputs of docs/notebooks anew
make docs                 builds the site into build/site; warnings are errors
"""
