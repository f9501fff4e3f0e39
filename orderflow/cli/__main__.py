"""`python -m orderflow.cli`: the program `orderflow`, also where no script of that name is on PATH."""

from orderflow.cli import main

if __name__ == "__main__":
    main()
