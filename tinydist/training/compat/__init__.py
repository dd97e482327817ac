"""Programs and configurations of others, on this library's engine.

config.py       DeepSpeed's ds_config.json: a plan, an optimizer, rates (ds_*.py)
initialize.py   loops as DeepSpeed's tutorials write them; model_engine.py: what they train by
pretrain.py     programs as Megatron-LM's pretrain_gpt.py (megatron_*.py)
"""
