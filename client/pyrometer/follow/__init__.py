"""Follow a trainer's log: its steps reach the exporter as if the job had reported them, with no change to its code.

    python -m pyrometer.follow train.log --run=llama-8b --gpus=64 --flops-per-token=51.47e9 --peak-flops=989.4e12

Each format is a row or a file in ``formats/``; a log that prints one line for ten steps yields one point for ten steps.
"""
