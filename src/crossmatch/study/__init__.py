"""The annotation service: people answer questions about images and captions in a browser, and their answers become judgements."""
