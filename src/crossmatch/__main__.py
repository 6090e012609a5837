"""`python -m crossmatch`"""

from crossmatch.cli import main

if __name__ == "__main__":
    main()
