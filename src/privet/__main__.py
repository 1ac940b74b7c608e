"""`python -m privet` is `privet`."""

from privet.cli.app import main

main()
