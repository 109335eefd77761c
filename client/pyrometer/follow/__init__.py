"""Follow a trainer's log: its steps reach the exporter as if the job had reported them, without a line of code in it.

    python -m pyrometer.follow train.log --run=llama-8b --gpus=64 --flops-per-token=51.47e9 --peak-flops=989.4e12

Each format is one file in ``formats/``; a log that gives one line for ten steps gives one point for ten steps.
"""
