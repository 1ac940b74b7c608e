"""Tools for the docs: the generated reference, checks of commands, and the site.

python -m manual          rewrite docs/reference and the outputs of docs/notebooks
make docs                 build the site into build/site; warnings are errors
"""
