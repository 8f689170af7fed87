"""What an adapter is: the PreFT maths, its files, its names, its storage. Imports none of the other packages."""
