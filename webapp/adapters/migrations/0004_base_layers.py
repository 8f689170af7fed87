from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("adapters", "0003_forgetting"),
    ]

    operations = [
        migrations.AddField(
            model_name="basemodel",
            name="layers",
            field=models.IntegerField(null=True),
        ),
    ]
