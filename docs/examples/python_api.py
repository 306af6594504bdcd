"""An audit of a function, in Python: python docs/examples/python_api.py"""

import stillme


def edit(image, instruction, seed):
    """Your editor: a PIL image in, a PIL image out."""
    return image.transpose(0)


audit = stillme.Audit(editors=[edit], prompts=["Make this person smile"], sample={"size": 12}, folder="my-run")
run = stillme.run(audit)
rates = run.estimates(all=True).to_frame().query("scope == 'all'")
print(rates[["quantity", "value", "low", "high", "judge"]].to_string(index=False))
print(run.report())
